#include "trireme/transport/throughput_meter.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using std::chrono::milliseconds;

TEST(ThroughputMeter, KnowsNothingBeforeSomethingHasMoved) {
  ThroughputMeter meter;
  EXPECT_FALSE(meter.bytes_per_s().has_value());
}

TEST(ThroughputMeter, CountsBusyTimeOnly) {
  ThroughputMeter meter;
  ThroughputMeter::Time now{};
  for (int32_t transfer = 0; transfer < 3; ++transfer) {
    meter.start(now);
    for (int32_t i = 0; i < 1000; ++i) meter.move(1000, now += milliseconds(1));
    meter.end(now);
    now += std::chrono::hours(1);
  }
  // 1 MB/s in steps of 1 ms, at each of which the bytes have not faded yet: 1e6 x (1 + 0.5 ms /
  // tau) to the first order.
  EXPECT_NEAR(*meter.bytes_per_s(), 1e6 * (1 + 0.5 / 200), 100);
}

TEST(ThroughputMeter, TakesTransfersThatOverlapTogether) {
  ThroughputMeter meter;
  ThroughputMeter::Time now{};
  meter.start(now);
  meter.start(now);
  for (int32_t i = 0; i < 1000; ++i) {
    now += milliseconds(1);
    meter.move(1000, now);
    meter.move(1000, now);
  }
  meter.end(now);
  meter.end(now);
  EXPECT_NEAR(*meter.bytes_per_s(), 2e6 * (1 + 0.5 / 200), 200);
}

TEST(ThroughputMeter, ForgetsThePast) {
  ThroughputMeter meter;
  ThroughputMeter::Time now{};
  meter.start(now);
  for (int32_t i = 0; i < 2000; ++i) meter.move(1000, now += milliseconds(1));
  const double fast = *meter.bytes_per_s();
  // After 400 ms without a byte exp(-2) of it is left.
  meter.move(0, now += milliseconds(400));
  EXPECT_NEAR(*meter.bytes_per_s(), fast * std::exp(-2), 0.001 * fast);
}

}  // namespace
}  // namespace trireme
