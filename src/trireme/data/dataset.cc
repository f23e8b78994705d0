#include "trireme/data/dataset.h"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/sources.h"

namespace trireme {
namespace {

constexpr std::array kSources = {
    DataSource{"bytes", "PATH[,PATH...]",
               "files, or directories with all files below them, joined; samples of L bytes",
               open_bytes},
    DataSource{"tokens", "FILE[:uint16|uint32]",
               "a flat file of little-endian numbers (uint16 when not said); samples of L numbers",
               open_tokens},
    DataSource{"arrays", "X.npy[,Y.npy...]",
               "one NumPy array an input, in the order of the inputs; a sample a row", open_arrays},
    DataSource{"safetensors", "FILE", "one tensor an input, by the input's name; a sample a row",
               open_safetensors},
    DataSource{"random", "N", "N samples that are made up, for a trial of the speed", open_random},
};

std::string known_sources() {
  std::vector<std::string> names;
  for (const DataSource& source : kSources) names.push_back(fmt::format("{}:", source.name));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::span<const DataSource> data_sources() { return kSources; }

Result<std::vector<std::string>> split_paths(const SourceRequest& request) {
  std::vector<std::string> paths(1);
  for (size_t i = 0; i < request.rest.size(); ++i) {
    const char c = request.rest[i];
    if (c == '\\' && request.rest.substr(i + 1, 1) == ",") {
      paths.back() += request.rest[++i];
    } else if (c == ',') {
      paths.emplace_back();
    } else {
      paths.back() += c;
    }
  }
  for (const std::string& path : paths) {
    if (path.empty()) {
      return Error{fmt::format("the data '{}' names an empty path", request.spec)};
    }
  }
  return paths;
}

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& spec,
                                              std::vector<InputSpec> inputs,
                                              std::optional<int64_t> seq_len) {
  const size_t colon = spec.find(':');
  if (colon == std::string::npos) {
    return Error{fmt::format("the data '{}' does not say its kind; put one of {} before it", spec,
                             known_sources())};
  }
  if (inputs.empty()) {
    return Error{fmt::format("the model has no inputs, so it cannot read {}", spec)};
  }
  const std::string_view kind = std::string_view(spec).substr(0, colon);
  for (const DataSource& source : kSources) {
    if (source.name != kind) continue;
    return source.open(SourceRequest{.spec = spec,
                                     .rest = spec.substr(colon + 1),
                                     .inputs = std::move(inputs),
                                     .seq_len = seq_len});
  }
  return Error{fmt::format("the data '{}' is of the unknown kind '{}'; known are {}", spec, kind,
                           known_sources())};
}

}  // namespace trireme
