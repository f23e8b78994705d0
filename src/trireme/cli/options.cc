// The command line. CLI11 reports by exceptions; they end here.

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/command.h"
#include "trireme/cli/launchers.h"
#include "trireme/cli/request.h"

#ifndef TRIREME_VERSION
#define TRIREME_VERSION "0.1.0"
#endif

namespace trireme {
namespace {

constexpr Command kCommands[] = {
    {.name = "inspect",
     .summary = "what is in a .pt2",
     .footer = "Example:\n  trireme inspect gpt.pt2 --graph | less",
     .add = add_inspect},
    {.name = "plan",
     .summary = "what would go where: the dry run of train",
     .footer = "Example:\n  trireme plan gpt.pt2 --pp 2 --dp 2 --micro-batches 4 -o plan.yaml",
     .add = add_plan},
    {.name = "policies",
     .summary = "what decides when gradients travel",
     .footer = "Example:\n  trireme policies --page > docs/policies.md",
     .add = add_policies},
    {.name = "schedule",
     .summary = "who runs what when: a pipeline schedule as text, lanes or a picture",
     .footer = "Examples:\n"
               "  trireme schedule zb-h1 --stages 4 --micro-batches 8 --show\n"
               "  trireme schedule greedy --stages 4 --micro-batches 8 --costs F=2,I=2,W=2,delay=1 "
               "--in-flight 6 --svg greedy.svg\n"
               "  trireme schedule interleaved --stages 4 --chunks 2 > mine.schedule\n"
               "  trireme schedule mine.schedule --show",
     .add = add_schedule},
    {.name = "profile",
     .summary = "measure what each block of a model costs on this machine",
     .footer = "Examples:\n"
               "  trireme profile gpt.pt2 --micro-batch 1,2,4 --budget 1m -o gpt.profile\n"
               "  trireme profile gpt.pt2 --concurrent 2 -o gpt.profile    two ranks a machine",
     .add = add_profile},
    {.name = "probe",
     .summary = "measure ranks, and messages between them: a cluster file",
     .footer = "Examples:\n"
               "  trireme probe --workers 4 -o this-host.yaml\n"
               "  trireme probe --transport gloo --budget 1m > this-host.yaml\n"
               "  mpirun -n 16 --map-by core trireme-worker probe -o cluster.yaml\n"
               "  trireme simulate gpt.pt2 --pp 4 --micro-batches 8 --micro-batch 4 --cluster "
               "cluster.yaml",
     .add = add_probe},
    {.name = "simulate",
     .summary = "what a step of a schedule would cost on a cluster",
     .footer =
         "Examples:\n"
         "  trireme simulate gpt.pt2 --pp 2 --micro-batches 8 --micro-batch 4 --profile "
         "gpt.profile\n"
         "  trireme simulate 1f1b --costs costs.yaml --cluster cluster.yaml --dp 4 "
         "--micro-batches 16\n"
         "  trireme simulate own.schedule --costs costs.yaml --cluster cluster.yaml "
         "-o own.timeline\n"
         "  trireme simulate 1f1b --model gpt:layers=24,hidden=2304,heads=24,seq=1024,vocab=51200 "
         "--pp 4 --micro-batches 16 --cluster cluster.yaml\n"
         "  trireme report own.timeline -o own.html",
     .add = add_simulate},
    {.name = "tune-comm",
     .summary = "which communication policy a plan had best have, by simulation",
     .footer = "Examples:\n"
               "  trireme tune-comm gpt.pt2 --pp 2 --dp 4 --micro-batches 8 --micro-batch 4 "
               "--cluster cluster.yaml -o plan.yaml\n"
               "  trireme tune-comm 2bw --model "
               "gpt:layers=24,hidden=2304,heads=24,seq=1024,vocab=51200 --pp 4 --dp 4 "
               "--micro-batches 16 --cluster cluster.yaml",
     .add = add_tune_comm},
    {.name = "rehearse",
     .summary = "run a step's ranks, threads and messages with passes that only take their time",
     .footer =
         "Examples:\n"
         "  trireme rehearse gpt.pt2 --pp 4 --micro-batches 8 --micro-batch 4 --profile "
         "gpt.profile\n"
         "  trireme rehearse zb-h1 --costs costs.yaml --micro-batches 8 --timeline run.timeline\n"
         "  scripts/shaped run --hosts 8 --rate 200mbit -- trireme-worker rehearse 1f1b --costs "
         "costs.yaml --cluster shaped.yaml --micro-batches 16",
     .add = add_rehearse},
    {.name = "report",
     .summary = "where the time of a run went, and whether it was predicted",
     .footer = "Examples:\n"
               "  trireme train gpt.pt2 --data bytes:texts --batch 32 --steps 200 --pp 2 "
               "--timeline run.timeline\n"
               "  trireme report run.timeline -o run.html\n"
               "  trireme report run.timeline --json | jq .bubble_rate",
     .add = add_report},
    {.name = "train", .summary = "train a model", .footer = nullptr, .add = add_train},
    {.name = "eval",
     .summary = "the mean loss of a model on data",
     .footer = nullptr,
     .add = add_eval},
};

// Empty: the first argument is a command, or an option of the program itself.
std::string unknown_command(const std::vector<std::string>& arguments) {
  std::string known;
  for (const Command& command : kCommands) {
    if (!arguments.empty() && command.name == arguments[0]) return "";
    known += fmt::format("{}{}", known.empty() ? "" : ", ", command.name);
  }
  if (arguments.empty()) return fmt::format("give a command: {}", known);
  for (const char* option : {"-h", "--help", "--version"}) {
    if (arguments[0] == option) return "";
  }
  if (arguments[0].starts_with("-")) {
    return fmt::format("{} is no option before a command; give a command: {}", arguments[0], known);
  }
  return fmt::format("there is no command {}; known are {}", arguments[0], known);
}

NothingToDo refused(std::string_view message) {
  return {.exit_code = 2, .output = one_line(message) + "\n"};
}

// What CLI11 found no place for, which it names in reverse.
std::string first_extra(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  for (const std::string& argument : arguments) {
    if (std::find(extras.begin(), extras.end(), argument) != extras.end()) return argument;
  }
  return extras.empty() ? "" : extras[0];
}

constexpr const char* kFooter =
    "Examples:\n"
    "  trireme inspect gpt.pt2\n"
    "  trireme plan gpt.pt2 --pp 2 --dp 2 --micro-batches 4 -o plan.yaml\n"
    "  trireme train gpt.pt2 --data bytes:texts --batch 32 --steps 200 --pp 2 --dp 2\n"
    "  trireme train gpt.pt2 --data tokens:train.bin --batch 32 --epochs 1 --plan plan.yaml "
    "--save out.safetensors\n"
    "  trireme eval gpt.pt2 --data tokens:valid.bin --batch 32 --init out.safetensors\n"
    "  torchrun --no-python --nproc-per-node 4 trireme-worker train gpt.pt2 --data bytes:texts "
    "--batch 32 --steps 200 --pp 2 --dp 2\n"
    "Exit status: 0 done; 1 the run failed, also by weights or rows that a rank finds damaged;\n"
    "2 the request, the model or the plan was wrong.";

}  // namespace

Request parse_request(const std::string& program, const std::vector<std::string>& arguments) {
  CLI::App app("Trireme trains unmodified PyTorch models over many devices.", program);
  app.set_version_flag("--version", "trireme " TRIREME_VERSION);
  app.require_subcommand(1);
  app.footer(program == "trireme-worker" ? kFooter + ("\n" + launcher_help()) : kFooter);
  app.option_defaults()->always_capture_default(false);
  std::vector<std::pair<const CLI::App*, RequestMaker>> makers;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    makers.emplace_back(sub, command.add(*sub));
    sub->footer(command.footer != nullptr ? command.footer : kFooter);
  }
  if (const std::string what = unknown_command(arguments); !what.empty()) {
    return refused(fmt::format("{}: {}; see {} --help", program, what, program));
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    // Help and version; CLI11 knows which.
    std::ostringstream out;
    std::ostringstream error;
    app.exit(success, out, error);
    return NothingToDo{.exit_code = 0, .output = out.str()};
  } catch (const CLI::ExtrasError&) {
    return refused(fmt::format("{}: {} does not take {}; see {} {} --help", program, arguments[0],
                               first_extra(app, arguments), program, arguments[0]));
  } catch (const CLI::ParseError& error) {
    const bool has_command = !arguments[0].starts_with("-");
    return refused(fmt::format("{}: {}; see {}{} --help", program, error.what(), program,
                               has_command ? " " + arguments[0] : ""));
  }
  for (const auto& [sub, make] : makers) {
    if (!sub->parsed()) continue;
    Result<Request> request = make();
    if (!request.ok()) return refused(fmt::format("{}: {}", program, request.error().message));
    return std::move(request).value();
  }
  return refused(fmt::format("{}: give a command; see {} --help", program, program));
}

}  // namespace trireme
