// The wire between two ranks: what a connection begins with, and its frames.
//
// A pair of ranks has one stream for each urgency. The rank of the higher number connects and says
// hello; the other answers with a hello of its own. Anyone may connect to a port: whoever does not
// know the token of the run is closed and changes nothing.
//
//   hello   16 magic | 32 token | u32 from | u32 to | u32 number of ranks | u32 urgency
//   frame   u32 kind | u32 0 | u64 space | u64 tag | u64 id | u64 offset | u64 size | u64 whole
//
//   receiver -> sender   grant     the receive (space, tag) of `size` bytes is posted; its name is
//                                  `id`, its operation has `whole`
//   sender -> receiver   data      `size` bytes, which follow, belong at `offset` of receive `id`
//                        refusal   the send that meets receive `id` has another size: its
//                                  operation has `whole`
//
// All numbers are little-endian. A sender sends nothing before its grant, so data goes straight
// into the posted buffer, and nobody stores what nobody waits for. Grants and refusals travel on
// the urgent stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/exec/transport.h"

namespace trireme {

// What a data frame holds at most: as long as one is on its way, nothing overtakes it.
inline constexpr size_t kMaxFrameData = size_t{256} << 10;
inline constexpr size_t kTokenSize = 32;
inline constexpr size_t kHelloSize = 64;
inline constexpr size_t kHeaderSize = 56;
inline constexpr size_t kNumUrgencies = 2;

struct Hello {
  std::string token;  // kTokenSize characters
  int32_t from = 0;
  int32_t to = 0;
  int32_t num_ranks = 0;
  Urgency urgency = Urgency::kUrgent;

  bool operator==(const Hello&) const = default;
};

enum class FrameKind : uint8_t { kGrant = 1, kData = 2, kRefusal = 3 };

struct FrameHeader {
  FrameKind kind = FrameKind::kGrant;
  uint64_t space = 0;  // 0: transfers; else a communicator
  uint64_t tag = 0;
  uint64_t id = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t whole = 0;

  bool operator==(const FrameHeader&) const = default;
};

using HelloBytes = std::array<std::byte, kHelloSize>;
using HeaderBytes = std::array<std::byte, kHeaderSize>;

// REQUIRES: a token of kTokenSize.
[[nodiscard]] HelloBytes encode_hello(const Hello& hello);
[[nodiscard]] Result<Hello> decode_hello(const HelloBytes& bytes);
[[nodiscard]] HeaderBytes encode_header(const FrameHeader& header);
// Errors: another kind, or more data than a frame holds: the stream is of no use any more.
[[nodiscard]] Result<FrameHeader> decode_header(const HeaderBytes& bytes);

}  // namespace trireme
