// What a launcher may have set: one NAME=VALUE a line.

#include <algorithm>
#include <map>

#include "trireme/cli/host_list.h"
#include "trireme/cli/launchers.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::text_of(data, size);
  static_cast<void>(fuzz::is_accepted(expand_host_list(text)));
  std::map<std::string, std::string, std::less<>> variables;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t equals = std::min(line.find('='), line.size());
    variables[std::string(line.substr(0, equals))] = line.substr(std::min(equals + 1, line.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const VariableLookup lookup = [&variables](const char* name) -> const char* {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  static_cast<void>(is_first_of_host(lookup));
  const Result<RankEnvironment> place = read_rank_environment(lookup);
  if (!fuzz::is_accepted(place)) return 0;
  TRIREME_CHECK(place.value().rank < place.value().num_processes, "a rank is beyond the last one");
  return 0;
}
