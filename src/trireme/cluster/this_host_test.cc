#include "trireme/cluster/this_host.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ThisHost, IsAClusterOfOneDeviceARank) {
  const ThisHost host = this_host(3);
  ASSERT_TRUE(verify_cluster(host.cluster).ok()) << verify_cluster(host.cluster).error().message;
  const std::vector<const DeviceKind*> devices = devices_of(host.cluster);
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_GT(devices[0]->memory, 1e6);
  EXPECT_GE(host.num_cores, 1);
  EXPECT_EQ(parse_cluster(to_text(host.cluster)).value(), host.cluster);
}

}  // namespace
}  // namespace trireme
