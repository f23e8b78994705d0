// The arguments of a command, one a line.

#include <algorithm>
#include <vector>

#include "trireme/cli/request.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::text_of(data, size);
  std::vector<std::string> arguments;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    // An argument of a process has no such byte.
    const std::string_view line = text.substr(0, end);
    arguments.emplace_back(line.substr(0, line.find('\0')));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const Request request = parse_request("trireme", arguments);
  const auto* nothing = std::get_if<NothingToDo>(&request);
  if (nothing == nullptr) return 0;
  TRIREME_CHECK(nothing->exit_code == 0 || nothing->exit_code == 2, nothing->output);
  TRIREME_CHECK(nothing->output.ends_with('\n'), nothing->output);
  return 0;
}
