#include "trireme/transport/throughput_meter.h"

#include <cmath>

namespace trireme {

void ThroughputMeter::start(Time now) {
  pass(now);
  ++num_active_;
}

void ThroughputMeter::end(Time now) {
  pass(now);
  --num_active_;
}

void ThroughputMeter::move(uint64_t num_bytes, Time now) {
  pass(now);
  bytes_ += static_cast<double>(num_bytes);
}

void ThroughputMeter::pass(Time now) {
  if (num_active_ > 0) {
    const double tau = std::chrono::duration<double>(kThroughputMemory).count();
    const double busy = std::chrono::duration<double>(now - last_).count();
    const double kept = std::exp(-busy / tau);
    bytes_ *= kept;
    // The integral of exp(-t / tau) over the busy time that has passed.
    seconds_ = seconds_ * kept + tau * (1 - kept);
  }
  last_ = now;
}

std::optional<double> ThroughputMeter::bytes_per_s() const {
  if (seconds_ <= 0) return std::nullopt;
  return bytes_ / seconds_;
}

}  // namespace trireme
