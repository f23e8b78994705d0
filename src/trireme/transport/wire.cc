#include "trireme/transport/wire.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr std::string_view kMagic = "trireme-direct-1";
static_assert(kMagic.size() + kTokenSize + 4 * sizeof(uint32_t) == kHelloSize);

template <typename Number>
void put(std::byte* place, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) place[i] = static_cast<std::byte>(number >> (8 * i));
}

template <typename Number>
Number number_at(const std::byte* place) {
  Number number = 0;
  for (size_t i = 0; i < sizeof number; ++i) {
    number |= static_cast<Number>(static_cast<Number>(place[i]) << (8 * i));
  }
  return number;
}

}  // namespace

HelloBytes encode_hello(const Hello& hello) {
  TRIREME_CHECK(hello.token.size() == kTokenSize, "a token of another size");
  HelloBytes bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  std::memcpy(&bytes[kMagic.size()], hello.token.data(), kTokenSize);
  std::byte* numbers = &bytes[kMagic.size() + kTokenSize];
  put(numbers, static_cast<uint32_t>(hello.from));
  put(numbers + 4, static_cast<uint32_t>(hello.to));
  put(numbers + 8, static_cast<uint32_t>(hello.num_ranks));
  put(numbers + 12, static_cast<uint32_t>(hello.urgency));
  return bytes;
}

Result<Hello> decode_hello(const HelloBytes& bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{"the connection does not begin as one of this version of Trireme"};
  }
  const std::byte* numbers = &bytes[kMagic.size() + kTokenSize];
  const auto urgency = number_at<uint32_t>(numbers + 12);
  if (urgency >= kNumUrgencies) {
    return Error{fmt::format("a hello names stream {}, there are {}", urgency, kNumUrgencies)};
  }
  return Hello{
      .token = std::string(reinterpret_cast<const char*>(&bytes[kMagic.size()]), kTokenSize),
      .from = static_cast<int32_t>(number_at<uint32_t>(numbers)),
      .to = static_cast<int32_t>(number_at<uint32_t>(numbers + 4)),
      .num_ranks = static_cast<int32_t>(number_at<uint32_t>(numbers + 8)),
      .urgency = static_cast<Urgency>(urgency)};
}

HeaderBytes encode_header(const FrameHeader& header) {
  HeaderBytes bytes{};
  put(bytes.data(), static_cast<uint32_t>(header.kind));
  size_t place = 8;
  for (const uint64_t number :
       {header.space, header.tag, header.id, header.offset, header.size, header.whole}) {
    put(&bytes[place], number);
    place += sizeof number;
  }
  return bytes;
}

Result<FrameHeader> decode_header(const HeaderBytes& bytes) {
  const auto kind = number_at<uint32_t>(bytes.data());
  if (kind < 1 || kind > 3) return Error{fmt::format("a frame of unknown kind {}", kind)};
  const auto at = [&bytes](size_t index) { return number_at<uint64_t>(&bytes[8 + 8 * index]); };
  const FrameHeader header{.kind = static_cast<FrameKind>(kind),
                           .space = at(0),
                           .tag = at(1),
                           .id = at(2),
                           .offset = at(3),
                           .size = at(4),
                           .whole = at(5)};
  if (header.kind == FrameKind::kData && header.size > kMaxFrameData) {
    return Error{
        fmt::format("a frame of {} bytes, at most {} are allowed", header.size, kMaxFrameData)};
  }
  return header;
}

}  // namespace trireme
