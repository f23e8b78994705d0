// `trireme`: the command line. Torch-free: it starts in milliseconds.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/current_folder.h"
#include "trireme/cli/last_sentence.h"
#include "trireme/cli/launch.h"
#include "trireme/cli/launch_profile.h"
#include "trireme/cli/request.h"

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
  if (const auto* profile = std::get_if<ProfileRequest>(&request)) {
    return refuse(launch_profile(*profile, arguments, worker_beside_this_program()));
  }
  const Result<std::string> text = std::get<TextRequest>(request)();
  if (!text.ok()) return refuse(text.error());
  return print(text.value(), 0);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::end_with_a_sentence("trireme");
  return trireme::run({argv + 1, argv + argc});
}
