// Reads the JSON records of a PT2 archive: the program, and the tables of its weights.
//
// The only file of the engine that handles torch.export's schema. A program comes out as a Graph
// before ties are merged: one parameter input a name.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/import/archive.h"

namespace trireme {

struct Program {
  Graph graph;
  std::string torch_version;
};

// `record` names the bytes in errors.
[[nodiscard]] Result<Program> read_program(std::span<const std::byte> json,
                                           const std::string& record);

// The table `*_weights_config.json` or `*_constants_config.json`: name -> place. `folder` is put
// before the path of each record.
[[nodiscard]] Result<std::map<std::string, StoredTensor, std::less<>>> read_tensor_table(
    std::span<const std::byte> json, const std::string& record, const std::string& folder);

// The groups of tied names in `extra/trireme.json`; empty when there are none.
[[nodiscard]] Result<std::vector<std::vector<std::string>>> read_tie_groups(
    std::span<const std::byte> json, const std::string& record);

// What `extra/trireme.json` says of an input of the user: how the samples lie in it.
struct InputMark {
  std::string name;
  std::optional<size_t> batch_dim;
  std::string offsets;  // the input that cuts it, where it is jagged
};
[[nodiscard]] Result<std::vector<InputMark>> read_input_marks(std::span<const std::byte> json,
                                                              const std::string& record);

// False where `extra/trireme.json` says that the loss of a batch is not the mean over its parts.
[[nodiscard]] Result<bool> read_mean_over_samples(std::span<const std::byte> json,
                                                  const std::string& record);

}  // namespace trireme
