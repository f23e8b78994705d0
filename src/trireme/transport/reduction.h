// Reduction: one all-reduce of one rank, as messages between the members.
//
// The buffer is cut into pieces, a piece into a segment for each member, its owner:
//
//             segment 0   segment 1   segment 2
//   member 0   x00 ---+    x01         x02        1. each sends its part of a segment to the owner
//   member 1   x10    |    x11 <-      x12        2. the owner adds them in ascending order of the
//   member 2   x20    +->  x21         x22           members: (x0 + x1) + x2
//                                                 3. the owner sends the sum to all others
//
// So the sums depend neither on the timing nor on how the buffer is cut, and they are those of the
// loopback transport. Several pieces are on their way at once: while one is added, others travel.
// A buffer of at most kMaxExchangedBytes goes whole to all others, and each adds for itself: one
// message after the other is what takes time there. Memory: kMaxPiecesInFlight pieces. Used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/graph/dtype.h"
#include "trireme/transport/peer_streams.h"

namespace trireme {

inline constexpr size_t kMaxSegmentBytes = size_t{512} << 10;
inline constexpr size_t kMaxPiecesInFlight = 4;
inline constexpr size_t kMaxExchangedBytes = size_t{4} << 10;

struct ReductionMember {
  int32_t rank = 0;
  PeerStreams* streams = nullptr;  // null: this rank
};

struct ReductionRequest {
  uint64_t space = 0;      // of the communicator, the same at all members
  uint64_t first_tag = 0;  // of num_tags() that this reduction has for itself
  std::vector<ReductionMember> members;
  DType dtype = DType::kFloat32;
  std::span<std::byte> bytes;
  Urgency urgency = Urgency::kBulk;
  // Called once, with nothing or with the member that reduces something else, and its `whole`.
  std::function<void(std::optional<std::pair<int32_t, uint64_t>> misfit)> on_done;
  // As OnProgress of each message, with the rank of the other member.
  std::function<void(int32_t rank, uint64_t num_bytes)> on_progress;
};

// What all members must have in common, and back.
[[nodiscard]] constexpr uint64_t reduction_whole(size_t bytes, DType dtype) {
  return uint64_t{bytes} << 8 | static_cast<uint64_t>(dtype);
}

class Reduction {
 public:
  explicit Reduction(ReductionRequest request);
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  [[nodiscard]] static uint64_t num_tags(size_t num_bytes, size_t num_members);
  // May call on_done, which may destroy this.
  void start();

 private:
  struct Piece {
    size_t index = 0;
    std::vector<std::byte> scratch;  // the others' parts of the own segment, in their order
    size_t num_before_sum = 0;       // messages that the sum has to wait for
    size_t num_moving = 0;           // all messages
  };

  [[nodiscard]] std::span<std::byte> segment(size_t piece, size_t member) const;
  void start_piece(size_t index);
  void add(Piece& piece);
  void send_sum(Piece& piece);
  MessageWatch watch(Piece& piece, int32_t rank, bool is_before_sum);

  ReductionRequest request_;
  size_t own_ = 0;  // index of this rank among the members
  bool is_exchanged_ = false;
  size_t piece_size_ = 0;  // elements
  size_t num_pieces_ = 0;
  size_t next_piece_ = 0;
  size_t num_finished_ = 0;
  bool has_misfit_ = false;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace trireme
