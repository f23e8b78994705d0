// The control channel's messages and their frames.
//
// One TCP connection a rank carries everything that is not training data: the key-value store
// through which the ranks find each other, heartbeats, published lines, and the word that a rank
// has finished, failed or been lost. A frame is
//
//   u32 length of the rest | u8 kind | u32 request | i64 number | u32 count | count x (u32, bytes)
//
// little-endian. What `request`, `number` and the texts mean depends on the kind:
//
//   rank -> hub                                     hub -> rank
//   kHello       number = rank; magic, token, host  kWelcome | kRefused  (reason)
//   kHeartbeat                                      kHeartbeat           (the same back)
//   kSet         key, value                         kReply
//   kGet         key       (waits for the key)      kReply   value
//   kAdd         number = delta; key                kReply   number = the new value
//   kCheck       keys                               kReply   number = 1 if all are there
//   kWait        keys      (waits for all)          kReply
//   kDelete      key                                kReply   number = 1 if it was there
//   kCompareSet  key, expected, desired             kReply   the value that is there now
//   kNumKeys                                        kReply   number = keys in the store
//   kCancel      request = the waiting one's        none
//   kPublish     text                               none
//   kFailed      number = FailureOrigin;            kReply
//                message, what it was doing
//   kFinished                                       kReply
//   kWhere       text, the answer to kLost          kLost    number = rank; sentence
//
// A request that cannot be done is answered by kReplyError with a sentence. Anyone may connect to
// a port: bytes that are no such frame, a frame above the limit, or a wrong token close that
// connection and change nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

enum class MessageKind : uint8_t {
  kHello,
  kWelcome,
  kRefused,
  kHeartbeat,
  kSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kDelete,
  kCompareSet,
  kNumKeys,
  kCancel,
  kReply,
  kReplyError,
  kPublish,
  kFailed,
  kFinished,
  kLost,
  kWhere,
};

// Whose fault a reported failure is, as far as the reporting rank knows.
enum class FailureOrigin : uint8_t {
  kOwn,      // this rank's own for certain: a loss that is not finite, a file that cannot be read
  kUnknown,  // may follow from another rank's end: a transfer that failed
};

struct ControlMessage {
  MessageKind kind = MessageKind::kHeartbeat;
  uint32_t request = 0;
  int64_t number = 0;
  std::vector<std::string> texts;

  bool operator==(const ControlMessage&) const = default;
};

[[nodiscard]] inline ControlMessage make_message(MessageKind kind, int64_t number = 0,
                                                 std::vector<std::string> texts = {}) {
  return {.kind = kind, .request = 0, .number = number, .texts = std::move(texts)};
}

inline constexpr std::string_view kControlMagic = "trireme-control-2";
inline constexpr size_t kMaxHelloBytes = 512;               // before the token has been seen
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;  // after it

// The whole frame, length included.
[[nodiscard]] std::string encode_frame(const ControlMessage& message);

// Cuts a stream of bytes into messages.
class FrameReader {
 public:
  explicit FrameReader(size_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  void set_max_frame_bytes(size_t max_frame_bytes) { max_frame_bytes_ = max_frame_bytes; }
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message, none yet, or an error after which the stream is of no use.
  [[nodiscard]] Result<std::optional<ControlMessage>> next();

 private:
  size_t max_frame_bytes_;
  std::string buffer_;
  size_t consumed_ = 0;  // bytes of buffer_ that have been handed out
};

// 32 hexadecimal digits from the kernel's random numbers.
[[nodiscard]] std::string make_control_token();
// Takes the same time wherever the two differ.
[[nodiscard]] bool tokens_are_equal(std::string_view a, std::string_view b);

}  // namespace trireme
