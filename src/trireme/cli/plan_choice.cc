#include "trireme/cli/plan_choice.h"

#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "trireme/cli/own_order.h"
#include "trireme/import/mapped_file.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"

namespace trireme {
namespace {

// A plan is for training, and an evaluation follows it as far as it goes.
Status check_schedule(const std::string& name, int32_t chunks, Placement placement) {
  std::string known;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!builder.is_training) continue;
    if (builder.name != kOwnOrder) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", builder.name);
    }
    if (builder.name != name) continue;
    if (builder.num_chunks != kAnyChunks && builder.num_chunks != chunks) {
      return Error{fmt::format("schedule {} has {} {} a stage, not {}", name, builder.num_chunks,
                               builder.num_chunks == 1 ? "chunk" : "chunks", chunks)};
    }
    if (builder.placement != placement && name != kOwnOrder) {
      return Error{
          fmt::format("the plan places its chunks in another way than schedule {}; make "
                      "it again with trireme plan",
                      name)};
    }
    return Status();
  }
  const bool is_path = name.find_first_of("./") != std::string::npos;
  return Error{fmt::format("there is no schedule {}'{}' to train by; known are {}",
                           is_path ? "and no file " : "", name, known)};
}

constexpr int32_t kDefaultChunks = 2;  // of schedules that take any number

}  // namespace

int32_t chunks_of(const PlanChoice& choice) {
  if (choice.chunks.has_value()) return *choice.chunks;
  const Result<const ScheduleBuilder*> builder = find_builder(choice.schedule);
  if (!builder.ok()) return 1;
  return builder.value()->num_chunks == kAnyChunks ? kDefaultChunks : builder.value()->num_chunks;
}

int32_t stages_of(const PlanChoice& choice) {
  if (choice.pp.has_value()) return *choice.pp;
  const auto num_pieces = static_cast<int32_t>(choice.cut.size()) + 1;
  return std::max(1, num_pieces / chunks_of(choice));
}

Result<Plan> choose_plan(const Graph& graph, const std::string& model, const PlanChoice& choice) {
  if (choice.plan_path.empty()) {
    if (is_order_file(choice.schedule)) return plan_by_own_order(graph, model, choice);
    const Result<const ScheduleBuilder*> builder = find_builder(choice.schedule);
    const Placement placement = builder.ok() ? builder.value()->placement : Placement::kLooped;
    TRIREME_TRY(check_schedule(choice.schedule, chunks_of(choice), placement));
    if (const auto found = find_communication(choice.comm); !found.ok()) return found.error();
    return build_plan(graph, model,
                      {.pp = stages_of(choice),
                       .dp = choice.dp,
                       .micro_batches = choice.micro_batches.value_or(stages_of(choice)),
                       .schedule = choice.schedule,
                       .chunks = chunks_of(choice),
                       .placement = placement,
                       .communication = choice.comm,
                       .bucket_bytes = choice.bucket_bytes,
                       .sparse = choice.sparse,
                       .extra_warm_ups = choice.extra_warm_ups,
                       .cut_modules = choice.cut});
  }
  TRIREME_TRY(MappedFile file, MappedFile::open(choice.plan_path));
  const std::span<const std::byte> bytes = file.bytes();
  Result<Plan> plan = parse_plan({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!plan.ok()) return while_doing(choice.plan_path, plan.error());
  if (Status status = verify_plan(plan.value(), graph); !status.ok()) {
    return while_doing(choice.plan_path, status.error());
  }
  if (Status status =
          check_schedule(plan.value().schedule, plan.value().chunks, plan.value().placement);
      !status.ok()) {
    return while_doing(choice.plan_path, status.error());
  }
  if (const auto found = find_communication(plan.value().communication); !found.ok()) {
    return while_doing(choice.plan_path, found.error());
  }
  if (const Status fits = check_own_order(plan.value()); !fits.ok()) {
    return while_doing(choice.plan_path, fits.error());
  }
  return plan;
}

Result<SparseChoice> sparse_choice(const Plan& plan, const OptimizerOptions& optimizer) {
  if (!needs_rows(optimizer)) return plan.sparse;
  if (plan.sparse != SparseChoice::kNever) return SparseChoice::kAlways;
  return Error{
      fmt::format("--optimizer {} needs the rows of tables; leave out --sparse never, or use adamw",
                  optimizer.name)};
}

int32_t num_forwards_ahead(const Plan& plan) {
  return std::accumulate(plan.extra_warm_ups.begin(), plan.extra_warm_ups.end(), plan.pp - 1);
}

int32_t num_weight_versions(const Plan& plan) {
  const Result<const ScheduleBuilder*> builder = find_builder(plan.schedule);
  return builder.ok() ? builder.value()->num_weight_versions : 1;
}

}  // namespace trireme
