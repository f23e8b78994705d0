#include "trireme/exec/emulated_kernels.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "trireme/schedule/early_sums.h"
#include "trireme/schedule/peers.h"

namespace trireme {

using enum ActionKind;

namespace {

constexpr SimTime kSecond = 1'000'000'000;

SimTime monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<SimTime>(now.tv_sec) * kSecond + now.tv_nsec;
}

int64_t rounded_up(int64_t bytes, int64_t element) {
  return (bytes + element - 1) / element * element;
}

}  // namespace

SimTime sleep_for(SimTime duration) {
  const SimTime begin = monotonic_now();
  const SimTime end = begin + duration;
  const timespec deadline{.tv_sec = end / kSecond, .tv_nsec = end % kSecond};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) continue;
  return monotonic_now() - begin;
}

EmulatedKernels::EmulatedKernels(const Schedule& schedule, const StepCosts& costs, int32_t rank,
                                 Hold hold)
    : schedule_(schedule),
      costs_(costs),
      rank_(rank),
      stage_(costs.stages[static_cast<size_t>(stage_of(schedule, rank))]),
      hold_(std::move(hold)) {
  find_final_sums();
}

void EmulatedKernels::find_final_sums() {
  if (schedule_.num_micro_batches.size() == 1) return;
  const size_t num_buckets = stage_.bucket_bytes.size();
  for (size_t bucket = 0; bucket < num_buckets; ++bucket) {
    const auto pass = last_backward(schedule_, rank_, 0, chunks_of_bucket(stage_, bucket));
    if (!pass) continue;
    const ChunkCosts& chunk = stage_.chunks[static_cast<size_t>(pass->chunk)];
    final_sums_.push_back({.after = final_after(chunk, bucket, duration(*pass)),
                           .pass = *pass,
                           .sum = {kAllReduce, static_cast<int32_t>(bucket)}});
  }
  std::ranges::stable_sort(final_sums_, {}, &Final::after);
}

Status EmulatedKernels::compute(const Action& action) {
  const SimTime cost = duration(action);
  SimTime held = 0;
  for (const Final& final_sum : final_sums_) {
    if (final_sum.pass != action || on_final_ == nullptr) continue;
    hold_until(final_sum.after, held);
    on_final_(final_sum.sum);
  }
  hold_until(cost, held);
  held_.compute += held;
  held_.lateness += held - cost;
  return Status();
}

// `held`: since the begin of the pass, so that what comes late makes nothing after it later.
void EmulatedKernels::hold_until(SimTime time, SimTime& held) {
  if (time > held) held += hold_(time - held);
}

EmulatedKernels::Held EmulatedKernels::take_held() { return std::exchange(held_, {}); }

SimTime EmulatedKernels::duration(const Action& action) const {
  if (action.kind == kUpdate) return stage_.update;
  const ChunkCosts& chunk = stage_.chunks[static_cast<size_t>(action.chunk)];
  switch (action.kind) {
    case kForward:
    case kForwardKeepingInput:
      return chunk.forward;
    case kRecompute:
      return chunk.recompute;
    case kBackward:
      return chunk.backward;
    case kInputGradient:
      return chunk.input_gradient;
    case kWeightGradient:
      return chunk.weight_gradient;
    default:
      return 0;
  }
}

int64_t EmulatedKernels::size_of(const Action& action) const {
  if (action.kind == kAllReduce) {
    return rounded_up(stage_.bucket_bytes[static_cast<size_t>(action.index)], 4);
  }
  if (action.kind == kTiedReduce) {
    return rounded_up(costs_.tied_bytes[static_cast<size_t>(action.index)], 4);
  }
  if (action.kind == kRowExchange) return row_exchange_bytes(action);
  // At least a number, so that it is waited for.
  if (action.kind == kScalars) return std::max<int64_t>(rounded_up(costs_.scalar_bytes, 8), 8);
  // A message is what its sender makes.
  const bool is_sender = is_send(action.kind);
  const Counterpart other = other_side(schedule_, rank_, action);
  const StageCosts& sender =
      is_sender ? stage_ : costs_.stages[static_cast<size_t>(stage_of(schedule_, other.rank))];
  const int32_t chunk = is_sender ? action.chunk : other.action.chunk;
  const ChunkCosts& costs = sender.chunks[static_cast<size_t>(chunk)];
  const bool is_activation = action.kind == kSendActivation || action.kind == kReceiveActivation;
  return is_activation ? costs.activation_bytes : costs.gradient_bytes;
}

int64_t EmulatedKernels::row_exchange_bytes(const Action& action) const {
  const auto replicas = static_cast<int32_t>(schedule_.num_micro_batches.size());
  const int64_t element = action.index < sum_of_row_table(0) ? 8 : 4;
  return std::max(rounded_up(row_exchange_cost(stage_.rows, action.index, replicas), element),
                  element);
}

Result<std::shared_ptr<EmulatedKernels::Memory>> EmulatedKernels::new_memory(size_t size) {
  // Pages that no one has written take no memory.
  void* bytes = std::calloc(std::max<size_t>(size, 1), 1);
  if (bytes == nullptr)
    return Error{fmt::format("there is no memory for a message of {} bytes", size)};
  return std::make_shared<Memory>(
      Memory{.bytes = {static_cast<std::byte*>(bytes), std::free}, .size = size});
}

Result<Message> EmulatedKernels::message(const Action& action) {
  const auto size = static_cast<size_t>(size_of(action));
  std::shared_ptr<Memory> memory;
  if (is_send(action.kind)) {
    if (sent_ == nullptr || sent_->size < size) {
      TRIREME_TRY(sent_, new_memory(size));
    }
    memory = sent_;
  } else {
    const auto found = std::ranges::find_if(
        written_, [size](const auto& each) { return each.use_count() == 1 && each->size == size; });
    if (found != written_.end()) {
      memory = *found;
    } else {
      TRIREME_TRY(memory, new_memory(size));
      written_.push_back(memory);
    }
  }
  Message message{.parts = {std::span(memory->bytes.get(), size)}, .owner = memory};
  if (is_collective(action.kind)) {
    const bool is_counted = action.kind == kScalars ||
                            (action.kind == kRowExchange && action.index < sum_of_row_table(0));
    message.dtype = is_counted ? DType::kFloat64 : DType::kFloat32;
  }
  return message;
}

}  // namespace trireme
