#include "trireme/exec/control_protocol.h"

#include <array>

#include <sys/random.h>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kHeaderBytes = 1 + 4 + 8 + 4;
constexpr size_t kAnyNumber = SIZE_MAX;

struct TextCount {
  size_t least;
  size_t most;
};

// One row a kind, in the order of MessageKind.
constexpr std::array<TextCount, 20> kTextCounts = {{
    {3, 3},           // kHello
    {0, 0},           // kWelcome
    {1, 1},           // kRefused
    {0, 0},           // kHeartbeat
    {2, 2},           // kSet
    {1, 1},           // kGet
    {1, 1},           // kAdd
    {0, kAnyNumber},  // kCheck
    {0, kAnyNumber},  // kWait
    {1, 1},           // kDelete
    {3, 3},           // kCompareSet
    {0, 0},           // kNumKeys
    {0, 0},           // kCancel
    {0, 1},           // kReply
    {1, 1},           // kReplyError
    {1, 1},           // kPublish
    {2, 2},           // kFailed
    {0, 0},           // kFinished
    {1, 1},           // kLost
    {1, 1},           // kWhere
}};

void append_little_endian(std::string& out, uint64_t value, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t read_little_endian(std::string_view bytes, size_t num_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

Result<ControlMessage> decode_body(std::string_view body) {
  if (body.size() < kHeaderBytes) return Error{"a control frame is shorter than its header"};
  const auto kind = static_cast<unsigned char>(body[0]);
  if (kind >= kTextCounts.size()) {
    return Error{fmt::format("a control frame is of the unknown kind {}", kind)};
  }
  ControlMessage message{.kind = static_cast<MessageKind>(kind),
                         .request = static_cast<uint32_t>(read_little_endian(body.substr(1), 4)),
                         .number = static_cast<int64_t>(read_little_endian(body.substr(5), 8)),
                         .texts = {}};
  const uint64_t count = read_little_endian(body.substr(13), 4);
  if (count < kTextCounts[kind].least || count > kTextCounts[kind].most) {
    return Error{fmt::format("a control frame of kind {} has {} texts", kind, count)};
  }
  body.remove_prefix(kHeaderBytes);
  for (uint64_t i = 0; i < count; ++i) {
    if (body.size() < 4) return Error{"a control frame ends inside a text's length"};
    const uint64_t length = read_little_endian(body, 4);
    body.remove_prefix(4);
    if (body.size() < length) return Error{"a control frame ends inside a text"};
    message.texts.emplace_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  if (!body.empty()) return Error{"a control frame has bytes after its last text"};
  return message;
}

}  // namespace

std::string encode_frame(const ControlMessage& message) {
  std::string body;
  body.push_back(static_cast<char>(message.kind));
  append_little_endian(body, message.request, 4);
  append_little_endian(body, static_cast<uint64_t>(message.number), 8);
  append_little_endian(body, message.texts.size(), 4);
  for (const std::string& text : message.texts) {
    append_little_endian(body, text.size(), 4);
    body += text;
  }
  std::string frame;
  append_little_endian(frame, body.size(), kLengthBytes);
  return frame + body;
}

Result<std::optional<ControlMessage>> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kLengthBytes) return std::optional<ControlMessage>();
  const uint64_t length = read_little_endian(rest, kLengthBytes);
  if (length > max_frame_bytes_) {
    return Error{fmt::format("a control frame announces {} bytes, more than the {} allowed", length,
                             max_frame_bytes_)};
  }
  if (rest.size() < kLengthBytes + length) return std::optional<ControlMessage>();
  TRIREME_TRY(ControlMessage message, decode_body(rest.substr(kLengthBytes, length)));
  consumed_ += kLengthBytes + length;
  // Moving the rest to the front for every frame would be quadratic in a burst of small ones.
  if (consumed_ == buffer_.size() || consumed_ > (size_t{1} << 16)) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return std::optional<ControlMessage>(std::move(message));
}

std::string make_control_token() {
  std::array<unsigned char, 16> bytes{};
  const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
  TRIREME_CHECK(got == static_cast<ssize_t>(bytes.size()), "getrandom failed");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool tokens_are_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace trireme
