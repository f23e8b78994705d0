// `trireme plan`: what would go where, and why; nothing runs.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/cli/command.h"
#include "trireme/cli/commands/plan_options.h"
#include "trireme/cli/notes.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/own_order.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cli/validators.h"
#include "trireme/import/output_path.h"
#include "trireme/plan/gradients.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/drawing.h"

namespace trireme {
namespace {

struct PlanRequest {
  std::string model;
  PlanChoice plan;
  std::optional<int64_t> batch;
  std::string output;
  bool wants_json = false;
  bool shows_schedule = false;
};

nlohmann::json row_tables_json(const Graph& graph, const Partition& partition,
                               const RowTableOptions& options) {
  nlohmann::json json = nlohmann::json::array();
  for (const RowTable& table :
       possible_row_tables(graph, partition, options.step_samples, options.dp)) {
    json.push_back({{"name", graph.inputs[static_cast<size_t>(table.input)].names[0]},
                    {"num_rows", table.num_rows},
                    {"expected_rows", table.rows},
                    {"row_exchange_bytes", table.row_exchange_bytes()},
                    {"dense_bytes", table.dense_bytes()},
                    {"is_chosen", options.dp > 1 && is_chosen(table, options.choice)}});
  }
  return json;
}

Result<std::string> run_plan(const PlanRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.output}}, {{"MODEL", request.model}}));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kWhole));
  TRIREME_TRY(check_replaces("-o", request.output, "plan",
                             [](std::string_view text) { return parse_plan(text).ok(); }));
  TRIREME_TRY(Archive archive, Archive::open(request.model));
  const Graph& graph = archive.graph();
  TRIREME_TRY(Plan plan, choose_plan(graph, request.model, request.plan));
  TRIREME_TRY(verify_plan(plan, graph));
  TRIREME_TRY(const Partition partition, partition_by_plan(plan, graph));
  const RowTableOptions sparse{
      .choice = plan.sparse,
      .step_samples = request.batch.value_or(int64_t{plan.dp} * plan.micro_batches),
      .dp = plan.dp};
  TRIREME_TRY(const CommunicationRules communication, find_communication(plan.communication));
  TRIREME_TRY(const std::shared_ptr<const Schedule> order, own_order_of(plan));
  TRIREME_TRY(Schedule schedule,
              build_schedule(plan.schedule, {.num_stages = plan.pp,
                                             .num_micro_batches =
                                                 std::vector<int32_t>(plan.dp, plan.micro_batches),
                                             .num_chunks = plan.chunks,
                                             .order = order,
                                             .communication = communication}));
  if (!request.output.empty()) TRIREME_TRY(write_whole(request.output, to_text(plan)));
  if (request.wants_json) {
    nlohmann::json json = {
        {"model", plan.model},
        {"pp", plan.pp},
        {"dp", plan.dp},
        {"micro_batches", plan.micro_batches},
        {"schedule", plan.schedule},
        {"chunks", plan.chunks},
        {"communication", plan.communication},
        {"num_nodes", plan.num_nodes},
        {"row_tables", row_tables_json(graph, partition, sparse)},
        {"num_parameters_without_values", archive.num_parameters_without_values()}};
    for (const PlanStage& stage : plan.stages) {
      json["stages"].push_back({{"first_node", stage.first_node},
                                {"first_module", stage.first_module},
                                {"last_module", stage.last_module},
                                {"num_parameters", stage.num_parameters},
                                {"flops_share", stage.flops_share},
                                {"bytes_in", stage.bytes_in},
                                {"bytes_out", stage.bytes_out},
                                {"inputs", stage.inputs}});
    }
    return json_text(json, 1) + "\n";
  }
  std::string text = to_table(plan) + note_on_weights(archive);
  for (const std::string& note :
       {note_on_micro_batches(graph, plan.micro_batches), note_on_samples(archive, plan)}) {
    if (!note.empty()) text += fmt::format("  {}\n", note);
  }
  const std::string tables = row_tables_to_text(graph, partition, sparse);
  if (!tables.empty()) text += "\n" + tables;
  if (request.shows_schedule) text += "\n" + draw(schedule);
  return text;
}

}  // namespace

RequestMaker add_plan(CLI::App& app) {
  const auto request = std::make_shared<PlanRequest>();
  app.add_option("MODEL", request->model, "a .pt2")->required()->check(not_empty());
  add_plan_options(app, request->plan);
  app.add_option("--batch", request->batch,
                 "samples of a step, by which --sparse chooses [one a micro-batch]")
      ->check(positive());
  app.add_option("-o,--output", request->output, "write the plan to this YAML file")
      ->check(not_empty());
  app.add_flag("--show-schedule", request->shows_schedule, "draw the schedule of one step");
  app.add_flag("--json", request->wants_json, "print the plan as JSON");
  return [request]() -> Result<Request> {
    if (request->wants_json && request->shows_schedule) {
      return Error{"--json has no drawing; leave out --show-schedule"};
    }
    return Request([request] { return run_plan(*request); });
  };
}

}  // namespace trireme
