#include "trireme/cli/commands/plan_options.h"

#include <string>

#include <fmt/format.h>

#include "trireme/cli/requested_step.h"
#include "trireme/cli/validators.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"

namespace trireme {
namespace {

std::string schedule_names() {
  std::string names;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (!is_builder_name(builder.name) || !builder.is_training) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", builder.name);
  }
  return names;
}

}  // namespace

void add_stage_options(CLI::App& app, PlanChoice& plan) {
  app.add_option("--pp", plan.pp,
                 "pipeline stages [as --cut or the file of --schedule says, else 1]")
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--micro-batches", plan.micro_batches, "micro-batches a replica and step [pp]")
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--schedule", plan.schedule,
                 "pipeline schedule: " + schedule_names() +
                     ", or a file with the order of its passes, as trireme schedule writes it")
      ->capture_default_str()
      ->group("Plan");
  app.add_option("--chunks", plan.chunks,
                 "pieces of the model a stage holds, for schedules that take any [2 for them]")
      ->transform(positive_count())
      ->group("Plan");
  app.add_option(
         "--cut", plan.cut,
         "cut before these modules instead of where flops balance: h.3,h.6; pp x chunks - 1 "
         "names")
      ->delimiter(',')
      ->check(not_empty())
      ->group("Plan");
}

void add_plan_options(CLI::App& app, PlanChoice& plan) {
  add_stage_options(app, plan);
  app.add_option("--dp", plan.dp, "replicas (data parallelism)")
      ->capture_default_str()
      ->transform(positive_count())
      ->group("Plan");
  app.add_option("--comm", plan.comm,
                 "when what travels goes: " + describe_communication_policies())
      ->capture_default_str()
      ->group("Plan");
  app.add_option("--extra-warm-ups", plan.extra_warm_ups,
                 "of 1f1b and 2bw: how many forwards more each stage but the last is ahead of the "
                 "next one, for "
                 "slow links: 0,1,0 [0 for each]")
      ->delimiter(',')
      ->check(whole_number(0, kMaxMicroBatches))
      ->group("Plan");
  app.add_option("--bucket-bytes", plan.bucket_bytes,
                 "gradients that are summed at once: more save latencies, fewer leave earlier")
      ->capture_default_str()
      ->transform(positive())
      ->group("Plan");
  app.add_option_function<std::string>(
         "--sparse",
         [&plan](const std::string& text) {
           const Result<SparseChoice> choice = parse_sparse_choice(text);
           if (!choice.ok()) throw CLI::ValidationError("--sparse", choice.error().message);
           plan.sparse = choice.value();
         },
         "gradients of embedding tables are summed row by row, for the rows that a batch reads: "
         "auto (where that saves half of the bytes and a megabyte), never, always [auto]")
      ->group("Plan");
}

}  // namespace trireme
