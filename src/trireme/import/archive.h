// Archive: a `.pt2` file of torch.export.save, as its Graph and where its weights lie.
//
// Our own reader of the PT2 archive, schema major 8, training IR. The file is mapped; weights are
// spans into it and are read when somebody asks. Tied parameters (several names on one storage)
// become one parameter of the Graph with several names.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/import/zip_reader.h"

namespace trireme {

// Where the values of a parameter, buffer or constant lie.
struct StoredTensor {
  std::string record;  // of the ZIP file: a whole storage; empty when the archive has no values
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
  int64_t storage_offset = 0;    // in elements
};

class Archive {
 public:
  // Errors: every file that is not such an archive, or holds what the engine cannot run, in one
  // sentence that names the file, the record or node, and the remedy.
  static Result<Archive> open(const std::string& path);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const std::string& path() const { return zip_.path(); }
  // By any name of a parameter, buffer or constant. nullptr when there is none.
  [[nodiscard]] const StoredTensor* find_tensor(std::string_view name) const;
  // False when the archive was written without them, as under trireme.empty_weights().
  [[nodiscard]] bool has_values(const StoredTensor& tensor) const;
  // The number of parameters, tied ones counted once, that have none.
  // False where trireme.export found that the loss of a batch is not the mean over its samples: it
  // changes with the sizes of micro-batches. True where nobody looked.
  [[nodiscard]] bool is_mean_over_samples() const { return is_mean_over_samples_; }
  [[nodiscard]] int64_t num_parameters_without_values() const;
  // The storage that holds the tensor, checked to be large enough.
  [[nodiscard]] Result<std::span<const std::byte>> read_storage(const StoredTensor& tensor) const;
  [[nodiscard]] const ZipReader& zip() const { return zip_; }
  [[nodiscard]] const std::string& torch_version() const { return torch_version_; }

 private:
  explicit Archive(ZipReader zip) : zip_(std::move(zip)) {}
  Status read();
  Status read_tables(const std::string& root, const std::string& model);
  // Every parameter, buffer and constant is stored as the graph has it.
  [[nodiscard]] Status verify_tensors() const;
  // The record has enough bytes for the tensor.
  [[nodiscard]] Status verify_place(const StoredTensor& tensor, uint64_t record_size) const;
  Status merge_tied_parameters(const std::string& root);
  // What the exporter said of the inputs: the batch, and which are jagged.
  Status mark_inputs(const std::string& root);

  ZipReader zip_;
  Graph graph_;
  bool is_mean_over_samples_ = true;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::string torch_version_;
};

}  // namespace trireme
