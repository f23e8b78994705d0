#include "trireme/transport/wire.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Wire, AHelloSurvivesItsBytes) {
  const Hello hello{.token = "0123456789abcdef0123456789abcdef",
                    .from = 70000,
                    .to = 3,
                    .num_ranks = 70001,
                    .urgency = Urgency::kBulk};
  EXPECT_EQ(decode_hello(encode_hello(hello)).value(), hello);
}

TEST(Wire, AHeaderSurvivesItsBytes) {
  const FrameHeader header{.kind = FrameKind::kData,
                           .space = 0x0123456789abcdef,
                           .tag = 1,
                           .id = uint64_t{1} << 63,
                           .offset = uint64_t{1} << 40,
                           .size = kMaxFrameData,
                           .whole = 5};
  EXPECT_EQ(decode_header(encode_header(header)).value(), header);
}

TEST(Wire, WhatIsNoHelloIsRefused) {
  HelloBytes bytes = encode_hello({.token = std::string(kTokenSize, 'a')});
  bytes[60] = std::byte{2};
  EXPECT_EQ(decode_hello(bytes).error().message, "a hello names stream 2, there are 2");
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(decode_hello(bytes).error().message,
            "the connection does not begin as one of this version of Trireme");
}

TEST(Wire, WhatIsNoFrameIsRefused) {
  HeaderBytes bytes = encode_header({.kind = FrameKind::kData, .size = kMaxFrameData + 1});
  EXPECT_EQ(decode_header(bytes).error().message,
            "a frame of 262145 bytes, at most 262144 are allowed");
  bytes[1] = std::byte{1};
  EXPECT_EQ(decode_header(bytes).error().message, "a frame of unknown kind 258");
}

}  // namespace
}  // namespace trireme
