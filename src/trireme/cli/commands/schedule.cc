// `trireme schedule`: the schedule of one step as text, as lanes and as a picture; nothing runs.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/cli/command.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/validators.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/output_path.h"
#include "trireme/schedule/builders.h"
#include "trireme/schedule/communication.h"
#include "trireme/schedule/drawing.h"
#include "trireme/schedule/pass_costs_text.h"
#include "trireme/schedule/picture.h"
#include "trireme/schedule/unroll.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

constexpr int64_t kMaxPasses = int64_t{1} << 22;  // that a schedule is built of here
constexpr int64_t kMaxCells = int64_t{1} << 20;   // that are drawn
constexpr int32_t kDefaultChunks = 2;             // of schedules that take any number

struct ScheduleRequest {
  std::string name;  // or a file
  int32_t stages = 0;
  std::vector<int32_t> micro_batches;  // of each replica
  int32_t chunks = 0;
  int32_t max_in_flight = 0;
  std::string costs;
  std::string picture;
  std::vector<int32_t> extra_warm_ups;
  std::string comm = std::string(kDefaultCommunication);
  bool shows_lanes = false;
  bool wants_json = false;
};

const ScheduleBuilder* builder_of(const std::string& name) {
  const auto builders = schedule_builders();
  const auto found = std::ranges::find(builders, name, &ScheduleBuilder::name);
  return found == builders.end() || name == "text" ? nullptr : &*found;
}

std::string names() {
  std::string names;
  for (const ScheduleBuilder& builder : schedule_builders()) {
    if (builder.name == "text") continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", builder.name);
  }
  return names;
}

// Of a schedule whose steps overlap the first, one between and the last.
Result<std::vector<Schedule>> schedule_by_name(const ScheduleRequest& request,
                                               const PassCosts& costs) {
  const ScheduleBuilder& builder = *builder_of(request.name);
  if (request.stages == 0) return Error{"give --stages"};
  ScheduleOptions options{.num_stages = request.stages,
                          .num_micro_batches = request.micro_batches,
                          .num_chunks = request.chunks,
                          .costs = costs,
                          .max_in_flight = request.max_in_flight,
                          .extra_warm_ups = request.extra_warm_ups};
  TRIREME_TRY(options.communication, find_communication(request.comm));
  if (options.num_micro_batches.empty()) options.num_micro_batches = {request.stages};
  if (options.num_chunks == 0) {
    options.num_chunks = builder.num_chunks == kAnyChunks ? kDefaultChunks : builder.num_chunks;
    if (!builder.is_training || request.name == "greedy") options.num_chunks = 1;
  }
  int64_t num_passes = 0;
  for (const int32_t count : options.num_micro_batches) num_passes += count;
  num_passes *= int64_t{2} * options.num_stages * options.num_chunks;
  if (options.num_chunks > kMaxChunks || num_passes > kMaxPasses) {
    return Error{
        fmt::format("{} stages of {} chunks and {} micro-batches are too many: at most {} "
                    "chunks, and {} passes in all",
                    options.num_stages, options.num_chunks,
                    fmt::join(options.num_micro_batches, ","), kMaxChunks, kMaxPasses)};
  }
  return build_run(request.name, options, builder.num_weight_versions == 2 ? 3 : 1);
}

// A file lists all actions, or the passes alone, to which the others are added.
Result<Schedule> schedule_of_file(const ScheduleRequest& request, const PassCosts& costs) {
  Result<MappedFile> file = MappedFile::open(request.name);
  if (!file.ok()) {
    return Error{fmt::format("{}, and no schedule by name: {}", file.error().message, names())};
  }
  const std::span<const std::byte> bytes = file.value().bytes();
  Result<Schedule> parsed =
      parse_schedule({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!parsed.ok()) return while_doing(request.name, parsed.error());
  const Schedule& order = parsed.value();
  if (request.stages != 0 || request.chunks != 0) {
    return Error{
        fmt::format("{} says how many stages and chunks it has; leave out --stages and "
                    "--chunks",
                    request.name)};
  }
  const bool is_whole = std::ranges::any_of(order.ranks, [](const std::vector<Action>& actions) {
    return std::ranges::any_of(
        actions, [](const Action& action) { return action.kind == ActionKind::kScalars; });
  });
  if (is_whole) {
    if (!request.micro_batches.empty()) {
      return Error{fmt::format("{} says how many micro-batches it has; leave out --micro-batches",
                               request.name)};
    }
    const Status verified = verify_schedule(order);
    if (!verified.ok()) return while_doing(request.name, verified.error());
    return parsed;
  }
  Result<Schedule> built = build_schedule(
      "text", {.num_stages = order.num_stages,
               .num_micro_batches =
                   request.micro_batches.empty() ? order.num_micro_batches : request.micro_batches,
               .num_chunks = order.num_chunks,
               .costs = costs,
               .max_in_flight = request.max_in_flight,
               .order = std::make_shared<const Schedule>(order)});
  return built.ok() ? std::move(built) : while_doing(request.name, built.error());
}

Result<std::string> run_schedule_command(const ScheduleRequest& request) {
  TRIREME_TRY(check_distinct({{"--svg", request.picture}}, {{"SCHEDULE", request.name}}));
  TRIREME_TRY(check_writable("--svg", request.picture, WriteKind::kWhole));
  TRIREME_TRY(check_replaces("--svg", request.picture, "SVG",
                             [](std::string_view text) { return text.starts_with("<svg"); }));
  PassCosts costs;
  if (!request.costs.empty()) {
    Result<PassCosts> parsed = parse_pass_costs(request.costs);
    if (!parsed.ok()) return while_doing("--costs", parsed.error());
    costs = parsed.value();
  }
  std::vector<Schedule> steps;
  if (builder_of(request.name) != nullptr) {
    TRIREME_TRY(steps, schedule_by_name(request, costs));
  } else {
    TRIREME_TRY(Schedule step, schedule_of_file(request, costs));
    steps.push_back(std::move(step));
  }
  std::string text;
  for (const Schedule& step : steps) text += to_text(step);
  const Schedule schedule = unroll(steps);
  if (!schedule.num_found.empty() || !schedule.num_ahead.empty()) {
    // What it finds has no time.
    if (!request.wants_json && !request.shows_lanes && request.picture.empty()) return text;
    return Error{
        fmt::format("{}: a step with found= or ahead= is drawn with its neighbours only: see "
                    "trireme schedule 2bw",
                    request.name)};
  }
  const auto table = timetable(schedule, costs);
  const int64_t end = makespan(table);
  if (!request.picture.empty()) {
    TRIREME_TRY(write_whole(request.picture, svg_picture(schedule, costs)));
  }
  if (request.wants_json) {
    return json_text(
               nlohmann::json{{"schedule", schedule.builder},
                              {"stages", schedule.num_stages},
                              {"chunks", schedule.num_chunks},
                              {"placement", schedule.placement == Placement::kV ? "v" : "looped"},
                              {"micro_batches", schedule.num_micro_batches},
                              {"makespan", end},
                              {"longest_span", longest_span(table)},
                              {"peak_in_flight", peak_in_flight(schedule)},
                              {"text", text}},
               1) +
           "\n";
  }
  if (!request.shows_lanes) return text;
  if (end > kMaxCells / static_cast<int64_t>(std::max<size_t>(table.size(), 1))) {
    return Error{fmt::format("{} lanes of {} units are too long to draw; give smaller --costs",
                             table.size(), end)};
  }
  return fmt::format(
      "{}{} units, the longest rank {} from its first pass to its last; in flight "
      "at most {}\n",
      draw(schedule, costs), end, longest_span(table), fmt::join(peak_in_flight(schedule), " "));
}

}  // namespace

RequestMaker add_schedule(CLI::App& app) {
  const auto request = std::make_shared<ScheduleRequest>();
  app.add_option("SCHEDULE", request->name,
                 fmt::format("{}, or a file with a schedule's text or with the order of its passes",
                             names()))
      ->required()
      ->check(not_empty());
  app.add_option("--stages", request->stages, "pipeline stages")->transform(positive_count());
  app.add_option("--micro-batches", request->micro_batches,
                 "micro-batches of each replica: 8, or 8,8,5 [stages]")
      ->delimiter(',')
      ->check(whole_number(0, kMaxMicroBatches));
  app.add_option("--chunks", request->chunks,
                 "pieces of the model a stage holds, for schedules that take any")
      ->transform(positive_count());
  app.add_option("--in-flight", request->max_in_flight,
                 "the most micro-batch chunks that a rank may have in flight")
      ->transform(positive_count());
  app.add_option("--costs", request->costs,
                 "what passes cost in units, and how long a transfer takes [F=1,B=2,I=1,W=1,R=1,"
                 "delay=0]")
      ->check(not_empty());
  app.add_option(
         "--comm", request->comm,
         "of a schedule by name, when what travels goes: " + describe_communication_policies())
      ->capture_default_str();
  app.add_option(
         "--extra-warm-ups", request->extra_warm_ups,
         "of 1f1b and 2bw: how many forwards more each stage but the last is ahead of the next one")
      ->delimiter(',')
      ->check(whole_number(0, kMaxMicroBatches));
  app.add_flag("--show", request->shows_lanes, "draw the lanes instead");
  app.add_option("--svg", request->picture, "write the picture to this file, too")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print text and numbers as JSON");
  return [request]() -> Result<Request> {
    if (request->wants_json && request->shows_lanes) {
      return Error{"--json has no drawing; leave out --show"};
    }
    return Request([request] { return run_schedule_command(*request); });
  };
}

}  // namespace trireme
