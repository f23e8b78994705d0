// InitialWeights: the weights that a run starts from: a safetensors file, or several with the index
// of Hugging Face that says which tensor lies in which.
//
//   model.safetensors.index.json   {"weight_map": {"h.0.bias": "model-00001-of-00002.safetensors",
//                                                  ...}}: the files lie beside the index
//
// All names are known once it is open. A file is mapped when one of its tensors is asked for, so a
// rank needs, and reads, only its own part.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/import/safetensors.h"

namespace trireme {

class InitialWeights {
 public:
  // `path` is a safetensors file, an index (*.json), or a folder that holds
  // model.safetensors.index.json or model.safetensors.
  static Result<InitialWeights> open(const std::string& path);

  // The file that says which tensors there are.
  [[nodiscard]] const std::string& path() const { return path_; }
  // It, and the files that an index names.
  [[nodiscard]] std::vector<std::string> files() const;
  [[nodiscard]] bool has(std::string_view name) const { return shard_of_.contains(name); }
  [[nodiscard]] std::vector<std::string> names() const;
  // Maps the file in which the tensor lies. Errors: it is absent or damaged, or lacks the tensor.
  // REQUIRES: has(name).
  Status map(std::string_view name);
  // nullptr when there is no such tensor, or it is not mapped.
  [[nodiscard]] const TensorView* find(std::string_view name) const;
  // Gives memory back that reading the tensor took; it can be read again.
  void release(std::string_view name) const;

 private:
  struct Shard {
    std::string path;
    std::optional<SafetensorsFile> file;
  };
  explicit InitialWeights(std::string path) : path_(std::move(path)) {}
  Status read_file();
  Status read_index();

  std::string path_;
  bool has_index_ = false;
  std::vector<Shard> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_;  // by the name of a tensor
};

}  // namespace trireme
