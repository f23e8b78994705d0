#include "trireme/exec/network_interfaces.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(NetworkInterfaces, TheLoopbackHasItsAddress) {
  const auto address = address_of_interface("lo");
  ASSERT_TRUE(address.ok()) << address.error().message;
  EXPECT_EQ(address.value(), "127.0.0.1");
}

TEST(NetworkInterfaces, OneThatDoesNotExistIsNamedBesideThoseThatDo) {
  const auto address = address_of_interface("nowhere0");
  ASSERT_FALSE(address.ok());
  EXPECT_TRUE(address.error().message.starts_with("this host has no interface nowhere0; it has "));
  EXPECT_NE(address.error().message.find("lo"), std::string::npos);
}

TEST(NetworkInterfaces, OthersNeverGetTheLoopback) {
  EXPECT_FALSE(address_for_others().starts_with("127."));
  EXPECT_NE(address_for_others(), "::1");
}

}  // namespace
}  // namespace trireme
