// The kinds of data a run can read: one row a kind. A new kind is one file and one row.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/dataset.h"

namespace trireme {

struct SourceRequest {
  std::string spec;               // as the user wrote it: names the data in errors
  std::string rest;               // of `spec`, behind the colon
  std::vector<InputSpec> inputs;  // at least one
  std::optional<int64_t> seq_len;
};

struct DataSource {
  std::string_view name;     // "bytes"
  std::string_view syntax;   // what follows the colon, for help
  std::string_view summary;  // one line, for help
  Result<std::unique_ptr<Dataset>> (*open)(const SourceRequest& request);
};

[[nodiscard]] std::span<const DataSource> data_sources();

// "a,b" as {"a", "b"}; a comma of a path is written as "\,". Errors: an empty path.
[[nodiscard]] Result<std::vector<std::string>> split_paths(const SourceRequest& request);

[[nodiscard]] Result<std::unique_ptr<Dataset>> open_bytes(const SourceRequest& request);
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_tokens(const SourceRequest& request);
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_arrays(const SourceRequest& request);
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_safetensors(const SourceRequest& request);
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_random(const SourceRequest& request);

}  // namespace trireme
