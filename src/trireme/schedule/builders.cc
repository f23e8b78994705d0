#include "trireme/schedule/builders.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"
#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

using enum ActionKind;

// 1F1B needs a look-ahead of at least 1, because neighbours send to each other at the same time; 2
// lets one receive of activations and one of gradients travel while the device computes, and bounds
// the memory of what has arrived early.
constexpr int32_t kLookAhead = 2;
constexpr int32_t kMostLookAhead = 16;

constexpr ScheduleBuilder kBuilders[] = {
    {.name = "gpipe",
     .summary = "all forwards, then all backwards; keeps every micro-batch alive",
     .source = "Huang et al., GPipe, NeurIPS 2019",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = gpipe_orders},
    {.name = "1f1b",
     .summary = "a forward and a backward in turn; keeps at most one micro-batch a stage alive",
     .source = "Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = true,
     .build_orders = one_f_one_b_orders},
    {.name = "interleaved",
     .summary = "1f1b over chunks: a smaller bubble for more transfers",
     .source = "Narayanan et al., Megatron-LM, SC 2021",
     .is_training = true,
     .num_chunks = kAnyChunks,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = interleaved_orders},
    {.name = "zb-h1",
     .summary = "1f1b with weight gradients where it would be idle; no more memory",
     .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = zb_h1_orders},
    {.name = "zb-h2",
     .summary = "zb-h1 with twice as much ahead: no bubble, twice the memory",
     .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = zb_h2_orders},
    {.name = "zb-v",
     .summary = "two chunks a rank as a V, and weight gradients where it would be idle",
     .source = "Qi et al., Pipeline Parallelism with Controllable Memory, 2024",
     .is_training = true,
     .num_chunks = 2,
     .placement = Placement::kV,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = zb_v_orders},
    {.name = "dualpipe-v",
     .summary = "two chunks a rank as a V, forwards and backwards side by side",
     .source = "DeepSeek-AI, DualPipe, 2025",
     .is_training = true,
     .num_chunks = 2,
     .placement = Placement::kV,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = dualpipe_v_orders},
    {.name = "pre-recompute",
     .summary = "1f1b that recomputes, in the drain before the gradient arrives",
     .source = "Lai et al., Merak, TPDS 2023",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = pre_recompute_orders},
    {.name = "last-no-recompute",
     .summary = "pre-recompute whose last stage keeps everything",
     .source = "Lai et al., Merak, TPDS 2023",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = last_no_recompute_orders},
    {.name = "shifted-critical-path",
     .summary = "last-no-recompute that hides three more recomputations",
     .source = "Lai et al., Merak, TPDS 2023",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = shifted_critical_path_orders},
    {.name = "2bw",
     .summary = "1f1b without a flush: two weight versions, and updates a step late",
     .source = "Narayanan et al., PipeDream-2BW, ICML 2021",
     .is_training = true,
     .num_chunks = 1,
     .placement = Placement::kLooped,
     .num_weight_versions = 2,
     .has_extra_warm_ups = true,
     .build_orders = two_bw_orders},
    {.name = "greedy",
     .summary =
         "an order found from the costs of passes, the delay between ranks and a memory limit",
     .source = "Chen et al., CrossPipe, ATC 2025",
     .is_training = true,
     .num_chunks = kAnyChunks,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = greedy_orders},
    {.name = "text",
     .summary = "the order in a file of yours",
     .source = "-",
     .is_training = true,
     .num_chunks = kAnyChunks,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = text_orders},
    {.name = "forward-only",
     .summary = "forwards without backwards: an evaluation",
     .source = "-",
     .is_training = false,
     .num_chunks = kAnyChunks,
     .placement = Placement::kLooped,
     .num_weight_versions = 1,
     .has_extra_warm_ups = false,
     .build_orders = forward_only_orders},
};

// By stage, of a step that is followed by one: the buckets that are summed in that one.
std::vector<std::vector<int32_t>> late_buckets(const Schedule& schedule) {
  std::vector<std::vector<int32_t>> buckets;
  for (int32_t stage = 0; stage < schedule.num_stages; ++stage) {
    std::vector<int32_t>& late = buckets.emplace_back();
    const int32_t count = schedule.num_buckets[static_cast<size_t>(stage)];
    for (int32_t b = num_free_buckets(schedule, stage); b < count; ++b) late.push_back(b);
  }
  return buckets;
}

// By stage: what it runs ahead.
std::vector<int32_t> ahead_of_stages(const Schedule& schedule,
                                     const std::vector<int32_t>& extra_warm_ups) {
  std::vector<int32_t> counts(static_cast<size_t>(schedule.num_stages), 0);
  for (size_t stage = counts.size() - 1; stage-- > 0;) {
    counts[stage] = counts[stage + 1] + 1 + (extra_warm_ups.empty() ? 0 : extra_warm_ups[stage]);
  }
  return counts;
}

Status check_extra_warm_ups(const ScheduleBuilder& builder, int32_t num_stages,
                            const std::vector<int32_t>& extra) {
  if (extra.empty() || !builder.is_training) return Status();
  if (!builder.has_extra_warm_ups) {
    return Error{
        fmt::format("schedule {} has no extra warm-ups, which are for 1f1b and 2bw", builder.name)};
  }
  if (extra.size() + 1 != static_cast<size_t>(num_stages)) {
    return Error{fmt::format("there are extra warm-ups of {} hops, but {} stages have {}",
                             extra.size(), num_stages, num_stages - 1)};
  }
  for (const int32_t count : extra) {
    if (count >= 0 && count <= kMaxMicroBatches) continue;
    return Error{
        fmt::format("{} extra warm-ups of a hop: there are 0 to {}", count, kMaxMicroBatches)};
  }
  return Status();
}

constexpr Action kLossesAction{kScalars, static_cast<int32_t>(ScalarExchange::kLosses)};

// The collectives but SC0, and the update, that end a step. Tied gradients are summed over the
// stages first, so that each replica's bucket then holds the same number wherever the parameter
// lives; the buckets without any do not wait for that.
std::vector<Action> build_reductions(const Schedule& schedule, int32_t rank) {
  const bool leaves_update = !schedule.num_ahead.empty() && !schedule.communication.updates_at_end;
  std::vector<Action> actions;
  if (!schedule.is_training) return actions;
  const int32_t stage = stage_of(schedule, rank);
  const int32_t num_buckets = schedule.num_buckets[static_cast<size_t>(stage)];
  const int32_t num_free = num_free_buckets(schedule, stage);
  for (int32_t bucket = 0; bucket < num_free; ++bucket) actions.push_back({kAllReduce, bucket});
  for (int32_t table = 0; table < num_row_tables(schedule, stage); ++table) {
    actions.push_back({kRowExchange, sum_of_row_table(table)});
  }
  for (size_t group = 0; group < schedule.tied_groups.size(); ++group) {
    if (!std::ranges::binary_search(schedule.tied_groups[group], stage)) continue;
    actions.push_back({kTiedReduce, static_cast<int32_t>(group)});
  }
  if (leaves_update) return actions;
  for (int32_t bucket = num_free; bucket < num_buckets; ++bucket) {
    actions.push_back({kAllReduce, bucket});
  }
  if (schedule.clips_norm) {
    actions.push_back({kScalars, static_cast<int32_t>(ScalarExchange::kSquaredNorms)});
  }
  actions.push_back({kUpdate});
  return actions;
}

// The place behind the last forward of the step's own batch, and behind what it sends; the
// beginning where there is none.
std::vector<Action>::iterator after_forwards(std::vector<Action>& actions) {
  const auto last = std::find_if(actions.rbegin(), actions.rend(), [](const Action& each) {
    return is_forward(each.kind) && each.batch == 0;
  });
  auto place = last.base();
  if (place != actions.begin() && place != actions.end() && place->kind == kSendActivation) ++place;
  return place;
}

// Which rows the replicas read is known after the last forward. SX1 waits for SX0, and the sums for
// SX1: passes in between hide the latencies.
void add_row_exchanges(const Schedule& schedule, int32_t rank, std::vector<Action>& actions) {
  if (!schedule.is_training || num_row_tables(schedule, stage_of(schedule, rank)) == 0) return;
  const auto last = std::find_if(actions.rbegin(), actions.rend(), [](const Action& each) {
    return ends_backward(each.kind) && each.batch == 0;
  });
  const auto ids = last == actions.rend() ? actions.end() : std::prev(last.base());
  actions.insert(ids, {kRowExchange, static_cast<int32_t>(RowExchangeStep::kIds)});
  actions.insert(after_forwards(actions),
                 {kRowExchange, static_cast<int32_t>(RowExchangeStep::kCounts)});
}

// Adds what ends a step to the passes and transfers of a rank. Of steps that overlap SC1- and SC0
// have one order on all ranks, which they would not have in the middle.
void end_step(const Schedule& schedule, int32_t rank, std::vector<Action>& actions) {
  std::vector<Action> reductions = build_reductions(schedule, rank);
  // The update of the batch before computes while the sums of this one travel.
  if (!schedule.num_ahead.empty() && !actions.empty() && actions.back().kind == kUpdate) {
    reductions.push_back(actions.back());
    actions.pop_back();
  }
  add_row_exchanges(schedule, rank, actions);
  auto losses = actions.end();
  const bool is_alone = schedule.num_ahead.empty() && schedule.num_found.empty();
  if (schedule.communication.sums_early && is_alone) losses = after_forwards(actions);
  actions.insert(losses, kLossesAction);
  actions.insert(actions.end(), reductions.begin(), reductions.end());
}

Status check_options(const ScheduleOptions& options) {
  const PassCosts& costs = options.costs;
  for (const int64_t cost : {costs.forward, costs.backward, costs.input_gradient,
                             costs.weight_gradient, costs.recompute, costs.delay}) {
    if (cost >= 0 && cost <= kMaxPassCost) continue;
    return Error{fmt::format("a pass costs {} units: it is 0 to {}", cost, kMaxPassCost)};
  }
  if (options.max_in_flight >= 0) return Status();
  return Error{fmt::format("{} in flight a rank: a limit is at least 1", options.max_in_flight)};
}

Status check_in_flight(const Schedule& schedule, int32_t max_in_flight) {
  if (max_in_flight == 0) return Status();
  const int32_t peak = std::ranges::max(peak_in_flight(schedule));
  if (peak <= max_in_flight) return Status();
  return Error{
      fmt::format("schedule {} has up to {} micro-batch chunks in flight on a rank, more "
                  "than the limit of {}",
                  schedule.builder, peak, max_in_flight)};
}

}  // namespace

std::span<const ScheduleBuilder> schedule_builders() { return kBuilders; }

Result<const ScheduleBuilder*> find_builder(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ScheduleBuilder& row : kBuilders) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  return Error{
      fmt::format("unknown schedule {}; known are {}", in_quotes(name), fmt::join(names, ", "))};
}

Result<Schedule> build_schedule(std::string_view name, const ScheduleOptions& options) {
  TRIREME_TRY(const ScheduleBuilder* builder, find_builder(name));
  TRIREME_TRY(check_options(options));
  if (builder->num_chunks != kAnyChunks && options.num_chunks != builder->num_chunks) {
    return Error{fmt::format("schedule {} has {} {} a rank, not {}", name, builder->num_chunks,
                             builder->num_chunks == 1 ? "chunk" : "chunks", options.num_chunks)};
  }
  Schedule schedule{.builder = std::string(name),
                    .num_stages = options.num_stages,
                    .num_chunks = options.num_chunks,
                    .placement = builder->placement,
                    .num_micro_batches = options.num_micro_batches,
                    .look_ahead = kLookAhead,
                    .is_training = builder->is_training,
                    .tied_groups = options.tied_groups,
                    .num_buckets = options.num_buckets,
                    .num_tied_buckets = options.num_tied_buckets,
                    .num_row_tables = options.num_row_tables,
                    .clips_norm = options.clips_norm,
                    .num_weight_versions = builder->num_weight_versions,
                    .communication = options.communication};
  const bool overlaps = builder->num_weight_versions == 2;
  schedule.communication.updates_at_end = options.communication.updates_at_end && overlaps;
  if (!builder->is_training) schedule.placement = options.placement;
  if (builder->name == "text" && options.order != nullptr) {
    schedule.num_chunks = options.order->num_chunks;
    schedule.placement = options.order->placement;
  }
  if (schedule.num_buckets.empty() && schedule.num_stages > 0) {
    schedule.num_buckets.assign(static_cast<size_t>(schedule.num_stages), 0);
  }
  TRIREME_TRY(verify_shape(schedule));
  const std::vector<int32_t>& found_extra =
      options.found_extra_warm_ups.value_or(options.extra_warm_ups);
  int32_t most_extra = 0;
  for (const std::vector<int32_t>& extra : {options.extra_warm_ups, found_extra}) {
    TRIREME_TRY(check_extra_warm_ups(*builder, options.num_stages, extra));
    if (!extra.empty()) most_extra = std::max(most_extra, std::ranges::max(extra));
  }
  const std::vector<int32_t> ahead = ahead_of_stages(schedule, options.extra_warm_ups);
  const std::vector<int32_t> found = ahead_of_stages(schedule, found_extra);
  // What a stage sends ahead of its neighbour is to be received by then, and what lies between.
  if (schedule.is_training) {
    schedule.look_ahead = std::max(schedule.look_ahead + 2 * most_extra, options.least_look_ahead);
  }
  if (!schedule.is_training || std::ranges::max(schedule.num_buckets) == 0) {
    schedule.communication.sums_early = false;
  }
  const std::vector<std::vector<int32_t>> late = late_buckets(schedule);
  if (overlaps && follows_a_step(options.place)) schedule.num_found = found;
  if (overlaps && is_followed_by_a_step(options.place)) {
    schedule.num_ahead = ahead;
  }
  std::map<int32_t, Schedule> replicas;  // those with as many micro-batches are the same
  for (int32_t rank = 0; rank < num_ranks(schedule); ++rank) {
    const int32_t count =
        schedule.num_micro_batches[static_cast<size_t>(replica_of(schedule, rank))];
    const auto [entry, is_new] = replicas.try_emplace(count);
    if (is_new) {
      const OrderRequest request{
          .num_stages = schedule.num_stages,
          .num_chunks = schedule.num_chunks,
          .num_micro_batches = count,
          .placement = schedule.placement,
          .costs = options.costs,
          .max_in_flight = options.max_in_flight,
          .order = options.order.get(),
          .place = options.place,
          .clips_norm = options.clips_norm,
          .ahead = ahead,
          .found = schedule.num_found.empty() ? std::vector<int32_t>(ahead.size(), 0) : found,
          .has_late_update = !schedule.num_found.empty() && !schedule.communication.updates_at_end,
          .late_buckets = late};
      TRIREME_TRY(const ComputeOrders orders, builder->build_orders(request));
      entry->second = with_transfers(request, orders);
    }
    std::vector<Action> actions =
        entry->second.ranks[static_cast<size_t>(stage_of(schedule, rank))];
    end_step(schedule, rank, actions);
    schedule.ranks.push_back(std::move(actions));
  }
  // Some need more: with chunks a rank may want a message before the one that its neighbour sends
  // first, and with more forwards ahead more of them arrive before they are wanted.
  Status verified = verify_schedule(schedule);
  while (!verified.ok() && schedule.look_ahead < kMostLookAhead) {
    ++schedule.look_ahead;
    verified = verify_schedule(schedule);
  }
  TRIREME_TRY(std::move(verified));
  TRIREME_TRY(check_in_flight(schedule, options.max_in_flight));
  return schedule;
}

Result<int32_t> look_ahead_of_change(std::string_view name, const ScheduleOptions& options) {
  TRIREME_TRY(const ScheduleBuilder* builder, find_builder(name));
  ScheduleOptions before = options;
  before.extra_warm_ups = options.found_extra_warm_ups.value();
  before.found_extra_warm_ups.reset();
  ScheduleOptions after = options;
  after.found_extra_warm_ups.reset();
  const bool overlaps = builder->num_weight_versions == 2;
  TRIREME_TRY(std::vector<Schedule> run, build_run(name, before, 3));
  run.pop_back();
  Status verified;
  for (int32_t look_ahead = 0; look_ahead <= kMostLookAhead; ++look_ahead) {
    run.resize(2);
    while (run.size() < 5) {
      ScheduleOptions of_step = run.size() == 2 ? options : after;
      of_step.least_look_ahead = look_ahead;
      const bool is_last = run.size() == 4;
      of_step.place = !overlaps ? StepPlace::kAlone
                      : is_last ? StepPlace::kLast
                                : StepPlace::kBetween;
      TRIREME_TRY(Schedule step, build_schedule(name, of_step));
      run.push_back(std::move(step));
    }
    verified = verify_run(run);
    if (verified.ok()) return look_ahead;
  }
  return verified.error();
}

Result<std::vector<Schedule>> build_run(std::string_view name, const ScheduleOptions& options,
                                        int32_t num_steps) {
  std::vector<Schedule> steps;
  for (int32_t step = 0; step < num_steps; ++step) {
    ScheduleOptions of_step = options;
    const bool is_last = step + 1 == num_steps;
    of_step.place = step == 0 ? (is_last ? StepPlace::kAlone : StepPlace::kFirst)
                              : (is_last ? StepPlace::kLast : StepPlace::kBetween);
    TRIREME_TRY(Schedule schedule, build_schedule(name, of_step));
    steps.push_back(std::move(schedule));
  }
  TRIREME_TRY(verify_run(steps));
  return steps;
}

}  // namespace trireme
