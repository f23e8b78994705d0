#include "trireme/exec/stream_socket.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(SocketAddress, ReadsBackAsWritten) {
  for (const SocketAddress& address : {SocketAddress{.host = "127.0.0.1", .port = 4000},
                                       SocketAddress{.host = "node-7.local", .port = 65535},
                                       SocketAddress{.host = "::1", .port = 0}}) {
    const auto parsed = parse_socket_address(to_text(address));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value(), address);
  }
  EXPECT_EQ(to_text({.host = "::1", .port = 80}), "[::1]:80");
}

TEST(SocketAddress, RefusesWhatIsNoHostAndPort) {
  for (const char* text : {"", "host", ":80", "host:", "host:http", "host:65536", "host:-1",
                           "host:80x", "::1:80", "[]:80"}) {
    const auto parsed = parse_socket_address(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, std::string(text) + " is no address of the form host:port");
  }
}

TEST(StreamSocket, ListeningOnAnAddressOfAnotherHostIsRefused) {
  const auto listener = listen_on({.host = "192.0.2.1", .port = 0});
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().message,
            "cannot listen on 192.0.2.1:0: Cannot assign requested address");
}

TEST(StreamSocket, ListensOnIPv6WhereThereIsOne) {
  const auto listener = listen_on({.host = "::1", .port = 0});
  if (!listener.ok()) {
    EXPECT_EQ(listener.error().message,
              "cannot listen on [::1]:0: Cannot assign requested address");
    return;
  }
  const SocketAddress address{.host = "::1", .port = bound_port(listener.value()).value()};
  EXPECT_TRUE(
      connect_until(address, std::chrono::steady_clock::now() + std::chrono::seconds(5)).ok());
}

}  // namespace
}  // namespace trireme
