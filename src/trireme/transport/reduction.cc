#include "trireme/transport/reduction.h"

#include <algorithm>
#include <cstring>

#include "trireme/transport/add.h"

namespace trireme {
namespace {

bool is_exchanged(size_t num_bytes) { return num_bytes <= kMaxExchangedBytes; }

size_t piece_bytes(size_t num_bytes, size_t num_members) {
  return is_exchanged(num_bytes) ? kMaxExchangedBytes : kMaxSegmentBytes * num_members;
}

size_t num_pieces(size_t num_bytes, size_t num_members) {
  const size_t size = piece_bytes(num_bytes, num_members);
  // Nothing is reduced by one empty piece, so that members with another size are found out.
  return std::max<size_t>(1, (num_bytes + size - 1) / size);
}

}  // namespace

uint64_t Reduction::num_tags(size_t num_bytes, size_t num_members) {
  return 2 * num_pieces(num_bytes, num_members);
}

Reduction::Reduction(ReductionRequest request)
    : request_(std::move(request)),
      is_exchanged_(is_exchanged(request_.bytes.size())),
      piece_size_(piece_bytes(request_.bytes.size(), request_.members.size())),
      num_pieces_(num_pieces(request_.bytes.size(), request_.members.size())) {
  while (request_.members[own_].streams != nullptr) ++own_;
}

std::span<std::byte> Reduction::segment(size_t piece, size_t member) const {
  const size_t begin = piece * piece_size_;
  const std::span<std::byte> bytes =
      request_.bytes.subspan(begin, std::min(piece_size_, request_.bytes.size() - begin));
  if (is_exchanged_) return bytes;
  const auto element = static_cast<size_t>(dtype_info(request_.dtype).size_bytes);
  const size_t count = bytes.size() / element;
  const size_t num_members = request_.members.size();
  const size_t first = count * member / num_members;
  const size_t last = count * (member + 1) / num_members;
  return bytes.subspan(first * element, (last - first) * element);
}

void Reduction::start() {
  if (request_.members.size() == 1) return request_.on_done(std::nullopt);
  for (size_t i = 0; i < std::min(num_pieces_, kMaxPiecesInFlight); ++i) start_piece(next_piece_++);
}

MessageWatch Reduction::watch(Piece& piece, int32_t rank, bool is_before_sum) {
  ++piece.num_moving;
  if (is_before_sum) ++piece.num_before_sum;
  const auto on_moved = [this, &piece, rank, is_before_sum](std::optional<uint64_t> other_whole) {
    if (has_misfit_) return;
    if (other_whole.has_value()) {
      has_misfit_ = true;
      return request_.on_done(std::pair(rank, *other_whole));
    }
    if (is_before_sum && --piece.num_before_sum == 0) add(piece);
    if (--piece.num_moving > 0) return;
    std::erase_if(pieces_, [&piece](const auto& each) { return each.get() == &piece; });
    if (next_piece_ < num_pieces_) start_piece(next_piece_++);
    if (++num_finished_ == num_pieces_) request_.on_done(std::nullopt);
  };
  return {.on_moved = on_moved, .on_progress = [this, rank](uint64_t num_bytes) {
            request_.on_progress(rank, num_bytes);
          }};
}

void Reduction::start_piece(size_t index) {
  Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
  piece.index = index;
  const uint64_t whole = reduction_whole(request_.bytes.size(), request_.dtype);
  const MessageKey part_key{.space = request_.space, .tag = request_.first_tag + 2 * index};
  const MessageKey sum_key{.space = request_.space, .tag = part_key.tag + 1};
  const size_t own_size = segment(index, own_).size();
  piece.scratch.resize(own_size * (request_.members.size() - 1));
  // Nothing moves before all callbacks are counted: a send that meets its grant only queues.
  size_t slot = 0;
  for (size_t i = 0; i < request_.members.size(); ++i) {
    const ReductionMember& member = request_.members[i];
    if (i == own_) continue;
    member.streams->receive(part_key, std::span(piece.scratch).subspan(own_size * slot++, own_size),
                            whole, watch(piece, member.rank, /*is_before_sum=*/true));
    if (is_exchanged_) continue;
    member.streams->receive(sum_key, segment(index, i), whole,
                            watch(piece, member.rank, /*is_before_sum=*/false));
  }
  for (size_t i = 0; i < request_.members.size(); ++i) {
    const ReductionMember& member = request_.members[i];
    if (i == own_) continue;
    // What is exchanged whole must have left before the sum takes its place.
    member.streams->send(part_key, segment(index, i), whole, request_.urgency,
                         watch(piece, member.rank, /*is_before_sum=*/is_exchanged_));
  }
}

void Reduction::add(Piece& piece) {
  const std::span<std::byte> own = segment(piece.index, own_);
  const auto part = [&](size_t slot) {
    return std::span(piece.scratch).subspan(own.size() * slot, own.size());
  };
  // The parts of the members before this one, this one's, those after it.
  for (size_t slot = 1; slot < own_; ++slot) add_to(part(0), part(slot), request_.dtype);
  if (own_ > 0) add_to(own, part(0), request_.dtype);
  for (size_t slot = own_; slot + 1 < request_.members.size(); ++slot) {
    add_to(own, part(slot), request_.dtype);
  }
  if (!is_exchanged_) send_sum(piece);
}

void Reduction::send_sum(Piece& piece) {
  const MessageKey sum_key{.space = request_.space,
                           .tag = request_.first_tag + 2 * piece.index + 1};
  const uint64_t whole = reduction_whole(request_.bytes.size(), request_.dtype);
  for (const ReductionMember& member : request_.members) {
    if (member.streams == nullptr) continue;
    member.streams->send(sum_key, segment(piece.index, own_), whole, request_.urgency,
                         watch(piece, member.rank, /*is_before_sum=*/false));
  }
}

}  // namespace trireme
