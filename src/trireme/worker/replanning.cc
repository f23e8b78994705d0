#include "trireme/worker/replanning.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme {
namespace {

constexpr std::string_view kCommunicator = "measurements";

// Places of a sum of doubles.
static_assert(std::is_trivially_copyable_v<RankMeasurement> &&
              sizeof(RankMeasurement) == (3 + 2 * kNumWays) * sizeof(double));

}  // namespace

Result<std::unique_ptr<Replanning>> Replanning::make(const RunSetup& setup, int32_t rank,
                                                     Kernels& kernels, Transport& transport) {
  if (setup.num_ranks() == 1 || setup.request.transport_kind() != TransportKind::kDirect) {
    return std::unique_ptr<Replanning>();
  }
  std::unique_ptr<Replanning> made(new Replanning(setup, rank, kernels, transport));
  std::vector<int32_t> all(static_cast<size_t>(setup.num_ranks()));
  std::iota(all.begin(), all.end(), 0);
  TRIREME_TRY(made->all_, transport.join(std::string(kCommunicator), std::move(all)));
  TRIREME_TRY(const ScheduleBuilder* builder, find_builder(setup.plan.schedule));
  made->can_change_ =
      setup.request.replan_drift > 0 && builder->has_extra_warm_ups && setup.plan.pp > 1;
  return made;
}

Replanning::Replanning(const RunSetup& setup, int32_t rank, Kernels& kernels, Transport& transport)
    : setup_(setup), rank_(rank), transport_(transport), timer_(kernels), replanner_(setup) {
  std::vector<int32_t> first = setup.plan.extra_warm_ups;
  if (first.empty()) first.assign(static_cast<size_t>(setup.plan.pp) - 1, 0);
  changes_[0].extra_warm_ups = std::move(first);
}

const Replanner::Change& Replanning::change(int64_t step) const {
  return std::prev(changes_.upper_bound(step))->second;
}

std::optional<ExtraWarmUps> Replanning::extra_warm_ups(int64_t step) const {
  if (!can_change_) return std::nullopt;
  return ExtraWarmUps{.own = change(step).extra_warm_ups,
                      .found = change(step - 1).extra_warm_ups,
                      .least_look_ahead = change(step).least_look_ahead};
}

int32_t Replanning::num_forwards_ahead(int64_t step) const {
  const std::vector<int32_t>& extra = change(step).extra_warm_ups;
  return std::accumulate(extra.begin(), extra.end(), setup_.plan.pp - 1);
}

Result<std::string> Replanning::begin_step(int64_t step) {
  std::string note;
  if (answer_.valid()) note = take_answer(step);
  if (ticket_.has_value()) TRIREME_TRY(hear(step));
  if (step % kPeriod == 2) TRIREME_TRY(tell());
  return note;
}

Status Replanning::finish() {
  if (answer_.valid()) answer_.wait();
  return ticket_.has_value() ? transport_.wait(*std::exchange(ticket_, std::nullopt)) : Status();
}

Status Replanning::tell() {
  sum_.assign(static_cast<size_t>(setup_.num_ranks()), RankMeasurement());
  RankMeasurement& own = sum_[static_cast<size_t>(rank_)];
  own.forward_s = timer_.take_mean(ActionKind::kForward);
  own.backward_s = timer_.take_mean(ActionKind::kBackward);
  own.update_s = timer_.take_mean(ActionKind::kUpdate);
  for (const Way way : {Way::kNextStage, Way::kPreviousStage, Way::kNextReplica}) {
    const int32_t peer = peer_of(setup_.plan, rank_, way);
    if (peer < 0) continue;
    own.links[static_cast<size_t>(way)] = transport_.take_measured(peer).value_or(MeasuredLink());
  }
  transport_.set_urgency(Urgency::kUrgent);
  TRIREME_TRY(ticket_, transport_.post_all_reduce(all_, DType::kFloat64,
                                                  std::as_writable_bytes(std::span(sum_))));
  return Status();
}

Status Replanning::hear(int64_t step) {
  TRIREME_TRY(transport_.wait(*std::exchange(ticket_, std::nullopt)));
  told_ = sum_;
  if (!can_change_ || !replanner_.hear(told_)) return Status();
  answer_ = std::async(std::launch::async, [this, now = change(step + 1).extra_warm_ups] {
    return replanner_.plan(now);
  });
  return Status();
}

std::string Replanning::take_answer(int64_t step) {
  const Found found = answer_.get();
  if (!found.ok()) {
    return fmt::format("a link has changed, but the schedule stays: {}", found.error().message);
  }
  const std::vector<int32_t>& before = change(step + 1).extra_warm_ups;
  const std::vector<int32_t>& after = found.value().extra_warm_ups;
  if (after == before) return "";
  std::string note =
      fmt::format("{}: from step {} on --extra-warm-ups {} instead of {}", found.value().why,
                  step + 1, fmt::join(after, ","), fmt::join(before, ","));
  changes_.emplace(step + 1, found.value());
  return note;
}

}  // namespace trireme
