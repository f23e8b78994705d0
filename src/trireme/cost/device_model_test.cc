#include "trireme/cost/device_model.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr DeviceModel kDevice = {.flops_per_s = 1e12,
                                 .bytes_per_s = 1e9,
                                 .processors = 4,
                                 .tile = 10,
                                 .matmul_efficiency = 0.5,
                                 .matmul_half_depth = 100,
                                 .memory_efficiency = 0.8,
                                 .launch_s = 1e-3};

TEST(DeviceModel, AMatrixProductRunsInWholeWavesOfTiles) {
  // 3 x 2 tiles on 4 processors: two waves, 8 tiles of 10 x 10, each 900 + 100 deep.
  const OperatorWork work = matmul_work("mm", {.m = 21, .n = 20, .k = 900}, 0);
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 21 * 20 * 900);
  EXPECT_DOUBLE_EQ(device_seconds(kDevice, work), 8 * 100 * 2 * 1000.0 / 0.5e12);
  // Batches share the waves: 12 tiles are three.
  const OperatorWork batched = matmul_work("bmm", {.m = 21, .n = 20, .k = 900, .batch = 2}, 0);
  EXPECT_DOUBLE_EQ(device_seconds(kDevice, batched), 12 * 100 * 2 * 1000.0 / 0.5e12);
}

TEST(DeviceModel, AFlatMatrixProductTakesTheTimeOfItsBytes) {
  const OperatorWork work = matmul_work("mv", {.m = 1, .n = 1000, .k = 1000}, 2);
  EXPECT_DOUBLE_EQ(work.bytes, 2 * (1000.0 + 1000000 + 1000));
  EXPECT_DOUBLE_EQ(device_seconds(kDevice, work), work.bytes / 0.8e9);
}

TEST(DeviceModel, APassTakesTheLongerOfComputingAndIssuingAndABitMoreWhereTheyAreClose) {
  const std::array long_one = {OperatorWork{.name = "copy", .bytes = 0.8e9}};  // 1 s, 1 ms
  EXPECT_NEAR(pass_seconds(kDevice, long_one), 1, 1e-12);
  const std::array many = {OperatorWork{.name = "small", .bytes = 0, .launches = 30}};
  EXPECT_DOUBLE_EQ(pass_seconds(kDevice, many), 30e-3);
  const std::array close = {OperatorWork{.name = "even", .bytes = 0.8e6, .launches = 1}};
  EXPECT_DOUBLE_EQ(pass_seconds(kDevice, close), 1e-3 * std::pow(2, 0.2));
  EXPECT_DOUBLE_EQ(pass_seconds(kDevice, {}), 0);
}

TEST(DeviceModel, OfAClusterHasTheRatesOfItsKind) {
  const DeviceKind kind = {.name = "a100",
                           .flops = {{"bfloat16", 312e12}, {"float32", 19.5e12}},
                           .memory = 80e9,
                           .bandwidth = 2e12,
                           .launch = 5e-6};
  const DeviceModel device = device_model_of(kind, "float32").value();
  EXPECT_EQ(device.flops_per_s, 19.5e12);
  EXPECT_EQ(device.bytes_per_s, 2e12);
  EXPECT_EQ(device.launch_s, 5e-6);
  EXPECT_EQ(device_model_of(kind, "float64").error().message,
            "device kind \"a100\" has no flops of float64, but of bfloat16, float32; add them to "
            "the cluster");
}

}  // namespace
}  // namespace trireme
