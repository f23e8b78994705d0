// `trireme`: the command line. Torch-free: it starts in milliseconds.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/cli/current_folder.h"
#include "trireme/cli/inspect.h"
#include "trireme/cli/last_sentence.h"
#include "trireme/cli/launch.h"
#include "trireme/cli/notes.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/request.h"
#include "trireme/cli/run_setup.h"
#include "trireme/plan/gradients.h"
#include "trireme/schedule/drawing.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

// The exit status: what was asked for must have reached its reader.
int print(std::string_view text, int exit_code) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return exit_code;
  }
  fmt::print(stderr, "trireme: cannot write to stdout: {}\n", std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

int refuse(const Error& error) {
  fmt::print(stderr, "trireme: {}\n", one_line(error.message));
  return 2;
}

Result<std::string> run_plan(const PlanRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.output}}, {{"MODEL", request.model}}));
  TRIREME_TRY(check_writable("-o", request.output, WriteKind::kInPlace));
  TRIREME_TRY(Archive archive, Archive::open(request.model));
  const Graph& graph = archive.graph();
  TRIREME_TRY(Plan plan, choose_plan(graph, request.model, request.plan));
  TRIREME_TRY(verify_plan(plan, graph));
  TRIREME_TRY(Schedule schedule,
              build_schedule(plan.schedule, {.num_stages = plan.pp,
                                             .num_micro_batches = std::vector<int32_t>(
                                                 plan.dp, plan.micro_batches)}));
  if (!request.output.empty()) {
    std::ofstream file(request.output);
    file << to_text(plan);
    if (!file.flush()) {
      return Error{fmt::format("cannot write {}: {}", request.output, std::strerror(errno))};
    }
  }
  if (request.wants_json) {
    nlohmann::json json = {
        {"model", plan.model},
        {"pp", plan.pp},
        {"dp", plan.dp},
        {"micro_batches", plan.micro_batches},
        {"schedule", plan.schedule},
        {"num_nodes", plan.num_nodes},
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
  if (request.shows_schedule) text += "\n" + draw(schedule);
  return text;
}

int run(const std::vector<std::string>& arguments) {
  const Request request = parse_request("trireme", arguments);
  if (const auto* nothing = std::get_if<NothingToDo>(&request)) {
    if (nothing->exit_code == 0) return print(nothing->output, 0);
    std::fputs(nothing->output.c_str(), stderr);
    return nothing->exit_code;
  }
  if (const Status there = check_current_folder(); !there.ok()) return refuse(there.error());
  if (const auto* run_request = std::get_if<RunRequest>(&request)) {
    const Result<LaunchOutcome> outcome =
        launch(*run_request, arguments, worker_beside_this_program());
    if (!outcome.ok()) return refuse(outcome.error());
    return print(outcome.value().result, outcome.value().exit_code);
  }
  const Result<std::string> text = std::holds_alternative<PlanRequest>(request)
                                       ? run_plan(std::get<PlanRequest>(request))
                                       : inspect(std::get<InspectRequest>(request));
  if (!text.ok()) return refuse(text.error());
  return print(text.value(), 0);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::end_with_a_sentence("trireme");
  return trireme::run({argv + 1, argv + argc});
}
