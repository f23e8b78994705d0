#include "trireme/cli/own_order.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/cli/read_text.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"

namespace trireme {
namespace {

using enum ActionKind;

// Of the replica with the most micro-batches, which all follow; what its reductions and its
// transfers are, the builder knows.
Result<Schedule> passes_of(Schedule written) {
  if (!written.is_training) return Error{"it is an evaluation, and no training"};
  if (written.num_weight_versions != 1) {
    return Error{"a step with versions=2 runs with its neighbours; name the schedule instead"};
  }
  const std::vector<int32_t>& counts = written.num_micro_batches;
  const auto longest = std::ranges::max_element(counts);
  const auto first =
      static_cast<size_t>(longest - counts.begin()) * static_cast<size_t>(written.num_stages);
  if (written.ranks.size() != counts.size() * static_cast<size_t>(written.num_stages)) {
    return Error{fmt::format("it lists {} ranks: {} stages of {} replicas make {}",
                             written.ranks.size(), written.num_stages, counts.size(),
                             counts.size() * static_cast<size_t>(written.num_stages))};
  }
  Schedule order{.builder = kOwnOrder,
                 .num_stages = written.num_stages,
                 .num_chunks = written.num_chunks,
                 .placement = written.placement,
                 .num_micro_batches = {*longest},
                 .num_buckets = std::vector<int32_t>(static_cast<size_t>(written.num_stages))};
  for (int32_t stage = 0; stage < written.num_stages; ++stage) {
    std::vector<Action>& actions = written.ranks[first + static_cast<size_t>(stage)];
    std::erase_if(actions, [](const Action& action) {
      const bool is_pass = is_compute(action.kind) && action.kind != kUpdate;
      return !is_pass && action.kind != kReceiveGradient;
    });
    order.ranks.push_back(std::move(actions));
  }
  return order;
}

Result<Schedule> parse_passes(std::string_view text) {
  TRIREME_TRY(Schedule written, parse_schedule(text));
  return passes_of(std::move(written));
}

Status check_chosen(const PlanChoice& choice, const Schedule& order) {
  if (choice.pp.value_or(order.num_stages) != order.num_stages) {
    return Error{fmt::format("it is of {} stages, but --pp is {}", order.num_stages, *choice.pp)};
  }
  if (choice.chunks.value_or(order.num_chunks) != order.num_chunks) {
    return Error{fmt::format("it is of {} chunks a stage, but --chunks is {}", order.num_chunks,
                             *choice.chunks)};
  }
  return Status();
}

}  // namespace

bool is_order_file(const std::string& schedule) {
  std::error_code ignored;
  return !find_builder(schedule).ok() && std::filesystem::is_regular_file(schedule, ignored);
}

Result<Plan> plan_by_own_order(const Graph& graph, const std::string& model,
                               const PlanChoice& choice) {
  const std::string& path = choice.schedule;
  TRIREME_TRY(const Schedule order, read_text(path, parse_passes));
  if (const Status fits = check_chosen(choice, order); !fits.ok()) {
    return while_doing(path, fits.error());
  }
  if (const auto found = find_communication(choice.comm); !found.ok()) return found.error();
  TRIREME_TRY(Plan plan, build_plan(graph, model,
                                    {.pp = order.num_stages,
                                     .dp = choice.dp,
                                     .micro_batches =
                                         choice.micro_batches.value_or(order.num_micro_batches[0]),
                                     .schedule = kOwnOrder,
                                     .chunks = order.num_chunks,
                                     .placement = order.placement,
                                     .communication = choice.comm,
                                     .order = to_text(order),
                                     .bucket_bytes = choice.bucket_bytes,
                                     .sparse = choice.sparse,
                                     .extra_warm_ups = choice.extra_warm_ups,
                                     .cut_modules = choice.cut}));
  if (const Status fits = check_own_order(plan); !fits.ok()) {
    return while_doing(path, fits.error());
  }
  return plan;
}

Status check_own_order(const Plan& plan) {
  if (plan.schedule != kOwnOrder) {
    if (plan.order.empty()) return Status();
    return Error{
        fmt::format("it has an order, but its schedule is {}, not {}", plan.schedule, kOwnOrder)};
  }
  if (plan.order.empty()) return Error{"schedule text needs an order of passes"};
  TRIREME_TRY(std::shared_ptr<const Schedule> order, own_order_of(plan));
  if (order->num_chunks != plan.chunks || order->placement != plan.placement) {
    return Error{"its order has other chunks than it says"};
  }
  const Result<Schedule> built =
      build_schedule(kOwnOrder, {.num_stages = plan.pp,
                                 .num_micro_batches = {plan.micro_batches},
                                 .num_chunks = plan.chunks,
                                 .order = std::move(order),
                                 .extra_warm_ups = plan.extra_warm_ups});
  return built.ok() ? Status() : Status(built.error());
}

Result<std::shared_ptr<const Schedule>> own_order_of(const Plan& plan) {
  if (plan.order.empty()) return std::shared_ptr<const Schedule>();
  TRIREME_TRY(Schedule order, parse_passes(plan.order));
  return std::make_shared<const Schedule>(std::move(order));
}

}  // namespace trireme
