#include "trireme/exec/pattern_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

// The byte that fills a part, from what the sender sends. Batches count through the whole run here
// and below.
std::byte fill_byte(int32_t sender, const Action& send, size_t part) {
  const size_t number = static_cast<size_t>(sender) * 101 + static_cast<size_t>(send.kind) * 31 +
                        static_cast<size_t>(send.index) * 7 + static_cast<size_t>(send.chunk) * 3 +
                        static_cast<size_t>(send.batch + 1) * 53 + part + 1;
  return static_cast<std::byte>(number % 251);
}

// Mostly small, and some around the borders of frames and packets. A transfer has one index on both
// sides, but not one chunk.
size_t size_by(uint32_t seed, const Action& action, size_t part) {
  std::seed_seq place = {seed, static_cast<uint32_t>(action.index), static_cast<uint32_t>(part)};
  std::minstd_rand random(place);
  constexpr std::array<uint32_t, 6> kBorders = {1, 1448, 4096, 8948, 262'144, 300'000};
  const uint32_t border = kBorders[random() % kBorders.size()];
  return random() % 4 == 0 ? border + random() % 3 - 1 : random() % 300;
}

// Sizes of the tensors of a transfer: some have none of their own.
std::vector<size_t> part_sizes(const Action& action, std::optional<uint32_t> seed) {
  std::vector<size_t> sizes =
      action.index % 2 == 0 ? std::vector<size_t>{5, 0, 17} : std::vector<size_t>{64};
  if (!seed.has_value()) return sizes;
  for (size_t part = 0; part < sizes.size(); ++part) sizes[part] = size_by(*seed, action, part);
  return sizes;
}

size_t num_summed(const Action& action, std::optional<uint32_t> seed) {
  return seed.has_value() ? size_by(*seed, action, 0) / 4 + 1 : 3;
}

// What a rank contributes to a reduction: small whole numbers, whose sums are exact.
double contribution(int32_t rank, const Action& action) {
  return rank * 10.0 + action.index + action.batch * 0.5 +
         (action.kind == ActionKind::kTiedReduce ? 1000.0 : 0.0);
}

template <typename Number>
std::vector<std::byte> numbers_as_bytes(double value, size_t count) {
  const std::vector<Number> numbers(count, static_cast<Number>(value));
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> reduction_bytes(const Action& action, double value, size_t count) {
  return action.kind == ActionKind::kScalars ? numbers_as_bytes<double>(value, count)
                                             : numbers_as_bytes<float>(value, count);
}

}  // namespace

Status PatternKernels::compute(const Action& action) {
  calls_.push_back(to_text(action));
  const std::vector<Action>& actions = schedule_.ranks[static_cast<size_t>(rank_)];
  const auto last = std::find_if(actions.rbegin(), actions.rend(),
                                 [](const Action& each) { return ends_backward(each.kind); });
  if (announced_.empty() || last == actions.rend() || action != *last) return Status();
  for (const int32_t bucket : announced_) {
    if (on_final_ != nullptr) on_final_({ActionKind::kAllReduce, bucket, 0, action.batch});
  }
  calls_.push_back("end " + to_text(action));
  return Status();
}

Result<Message> PatternKernels::message(const Action& called) {
  calls_.push_back("message " + to_text(called));
  if (called.batch > 1) return Error{"a message of a batch that is not begun"};
  Action action = called;
  action.batch += step_;
  auto memory = std::make_shared<Parts>();
  Message message{.parts = {}, .dtype = DType::kUint8, .owner = memory};
  if (is_collective(action.kind)) {
    message.dtype = action.kind == ActionKind::kScalars ? DType::kFloat64 : DType::kFloat32;
    memory->push_back(
        reduction_bytes(action, contribution(rank_, action), num_summed(called, size_seed_)));
  } else {
    for (size_t size : part_sizes(called, size_seed_)) {
      const std::byte fill =
          is_send(action.kind) ? fill_byte(rank_, action, memory->size()) : std::byte{0};
      memory->emplace_back(size, fill);
    }
  }
  for (std::vector<std::byte>& part : *memory) message.parts.emplace_back(part);
  if (!is_send(action.kind)) posted_.emplace_back(action, message);
  return message;
}

Status PatternKernels::complete(const Action& called) {
  calls_.push_back("complete " + to_text(called));
  Action action = called;
  action.batch += step_;
  const auto found = std::ranges::find(posted_, action, &std::pair<Action, Message>::first);
  if (found == posted_.end()) return Error{"completed without a message"};
  const Message message = found->second;
  posted_.erase(found);
  const auto other = counterpart(schedule_, rank_, action);
  double sum = 0.0;
  for (int32_t member : members(schedule_, rank_, action)) sum += contribution(member, action);
  for (size_t part = 0; part < message.parts.size(); ++part) {
    const std::vector<std::byte> expected =
        other ? std::vector<std::byte>(message.parts[part].size(),
                                       fill_byte(other->rank, other->action, part))
              : reduction_bytes(action, sum, num_summed(called, size_seed_));
    if (!std::ranges::equal(message.parts[part], expected)) {
      return Error{
          fmt::format("part {} of {} holds other bytes than were sent", part, to_text(action))};
    }
  }
  return Status();
}

}  // namespace trireme
