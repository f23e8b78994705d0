// `trireme report`: where the time of a run went, and whether it was predicted.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "trireme/cli/command.h"
#include "trireme/cli/outputs.h"
#include "trireme/cli/validators.h"
#include "trireme/import/output_path.h"
#include "trireme/trace/report_text.h"
#include "trireme/trace/timeline_files.h"

namespace trireme {
namespace {

struct ReportRequest {
  std::string timeline;
  std::string against;
  std::string page;
  std::string chrome;
  bool wants_json = false;
};

Result<std::string> run_report(const ReportRequest& request) {
  TRIREME_TRY(check_distinct({{"-o", request.page}, {"--chrome", request.chrome}},
                             {{"TIMELINE", request.timeline}, {"--against", request.against}}));
  TRIREME_TRY(check_writable("-o", request.page, WriteKind::kWhole));
  TRIREME_TRY(check_writable("--chrome", request.chrome, WriteKind::kWhole));
  TRIREME_TRY(const Timeline timeline, read_timeline(request.timeline));
  std::optional<Timeline> prediction;
  if (!request.against.empty()) {
    TRIREME_TRY(prediction, read_timeline(request.against));
    if (prediction->num_ranks() != timeline.num_ranks()) {
      return Error{fmt::format("{} has {} ranks, {} has {}: they are of different runs",
                               request.timeline, timeline.num_ranks(), request.against,
                               prediction->num_ranks())};
    }
  }
  for (const auto& [path, each] :
       {std::pair{request.timeline, &timeline},
        std::pair{request.against, prediction.has_value() ? &*prediction : &timeline}}) {
    if (each->events.empty()) {
      return Error{fmt::format("{} has no events: the run ended before its first step", path)};
    }
  }
  const Timeline* other = prediction.has_value() ? &*prediction : nullptr;
  if (!request.page.empty()) {
    const std::string title = std::filesystem::path(request.timeline).filename().string();
    TRIREME_TRY(write_whole(request.page, report_page(timeline, other, title)));
  }
  if (!request.chrome.empty()) TRIREME_TRY(write_whole(request.chrome, chrome_trace(timeline)));
  return request.wants_json ? report_json(timeline, other) : report_table(timeline, other);
}

}  // namespace

RequestMaker add_report(CLI::App& app) {
  const auto request = std::make_shared<ReportRequest>();
  app.add_option("TIMELINE", request->timeline,
                 "of `trireme train --timeline`, also of a run that was killed")
      ->required()
      ->check(not_empty());
  app.add_option("--against", request->against, "compare with this prediction of the same run")
      ->check(not_empty());
  app.add_option("-o,--output", request->page, "write a page for a browser, which needs no network")
      ->check(not_empty());
  app.add_option("--chrome", request->chrome,
                 "write a trace for Perfetto (ui.perfetto.dev) or chrome://tracing")
      ->check(not_empty());
  app.add_flag("--json", request->wants_json, "print the report as JSON");
  return [request]() -> Result<Request> {
    return Request([request] { return run_report(*request); });
  };
}

}  // namespace trireme
