// ThroughputMeter: how fast bytes go in one direction while something is on its way.
//
// A moving average over busy time: what was moved t seconds of busy time ago weighs exp(-t / tau),
// so a long transfer counts for what it is and idle time for nothing. Used by one thread at a time;
// time is given by the caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace trireme {

inline constexpr std::chrono::milliseconds kThroughputMemory(200);  // tau

class ThroughputMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A transfer starts, or ends; several may overlap. REQUIRES: as many ends as starts.
  void start(Time now);
  void end(Time now);
  // Of a transfer that has started.
  void move(uint64_t num_bytes, Time now);

  [[nodiscard]] std::optional<double> bytes_per_s() const;

 private:
  // Busy time since the last call fades what is there.
  void pass(Time now);

  int64_t num_active_ = 0;
  Time last_;
  // Both fade alike: their ratio is the average.
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace trireme
