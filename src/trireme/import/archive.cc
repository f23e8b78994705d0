#include "trireme/import/archive.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "trireme/graph/passes.h"
#include "trireme/import/program_reader.h"

namespace trireme {
namespace {

using TensorTable = std::map<std::string, StoredTensor, std::less<>>;

// The folder that all records share ("gpt/"), found by the record archive_format.
Result<std::string> root_folder(const ZipReader& zip) {
  for (const std::string& name : zip.names()) {
    if (name == "archive_format" || name.ends_with("/archive_format")) {
      TRIREME_TRY(auto bytes, zip.read(name));
      const std::string format(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (format != "pt2") {
        return Error{fmt::format("{} is a '{}' archive, not a .pt2 of torch.export.save",
                                 zip.path(), format)};
      }
      return name.substr(0, name.size() - std::string_view("archive_format").size());
    }
  }
  for (const std::string& name : zip.names()) {
    if (name.ends_with("/constants.pkl") || name.ends_with("/data.pkl")) {
      return Error{fmt::format(
          "{} is a TorchScript or torch.save file, not a .pt2; export the model with trireme.export",
          zip.path())};
    }
  }
  return Error{fmt::format("{} is a ZIP file but not a .pt2 of torch.export.save", zip.path())};
}

Result<std::string> model_name(const ZipReader& zip, const std::string& root) {
  const std::string folder = root + "models/";
  std::vector<std::string> models;
  for (const std::string& name : zip.names()) {
    if (name.starts_with(folder) && name.ends_with(".json")) {
      models.push_back(name.substr(folder.size(), name.size() - folder.size() - 5));
    }
  }
  if (models.size() != 1) {
    return Error{fmt::format("{} holds {} programs, not one; save one program an archive",
                             zip.path(), models.size())};
  }
  return models[0];
}

// Makes one parameter of several names that are tied, and every use read it.
Status merge_ties(Graph& graph, const std::vector<std::vector<std::string>>& groups) {
  for (const std::vector<std::string>& group : groups) {
    std::optional<size_t> first;
    for (size_t i = 0; i < graph.inputs.size();) {
      GraphInput& input = graph.inputs[i];
      const bool is_member = input.kind == GraphInput::Kind::kParameter &&
                             std::find(group.begin(), group.end(), input.names[0]) != group.end();
      if (!is_member) {
        ++i;
        continue;
      }
      if (!first.has_value()) {
        first = i++;
        continue;
      }
      GraphInput& kept = graph.inputs[*first];
      const ValueId gone = input.value;
      for (Node& node : graph.nodes) {
        for (NamedArgument& argument : node.arguments) {
          if (auto* id = std::get_if<ValueId>(&argument.value); id != nullptr && *id == gone) {
            *id = kept.value;
          }
          auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value);
          if (list != nullptr) {
            std::replace(list->begin(), list->end(), std::optional(gone), std::optional(kept.value));
          }
        }
      }
      kept.names.push_back(input.names[0]);
      kept.requires_grad = kept.requires_grad || input.requires_grad;
      graph.inputs.erase(graph.inputs.begin() + static_cast<int64_t>(i));
    }
  }
  return Status();
}

// Same record, same type, and values to share: a tie. The same record alone may be a view.
std::vector<std::vector<std::string>> ties_by_record(const Graph& graph, const TensorTable& tensors,
                                                     const ZipReader& zip) {
  std::vector<std::vector<std::string>> groups;
  std::vector<const StoredTensor*> places;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kParameter) continue;
    const auto found = tensors.find(input.names[0]);
    if (found == tensors.end()) continue;
    const StoredTensor& place = found->second;
    const Result<uint64_t> size = zip.size(place.record);
    if (!size.ok() || size.value() == 0) continue;
    bool is_placed = false;
    for (size_t i = 0; i < places.size() && !is_placed; ++i) {
      const StoredTensor& other = *places[i];
      if (other.record == place.record && other.sizes == place.sizes &&
          other.strides == place.strides && other.storage_offset == place.storage_offset &&
          other.dtype == place.dtype) {
        groups[i].push_back(input.names[0]);
        is_placed = true;
      }
    }
    if (is_placed) continue;
    places.push_back(&place);
    groups.push_back({input.names[0]});
  }
  std::erase_if(groups, [](const std::vector<std::string>& group) { return group.size() < 2; });
  return groups;
}

// The unused placeholders of a tie leave values that nothing defines: drop them.
void drop_undefined_values(Graph& graph) { remove_dead_code(graph); }

}  // namespace

Result<Archive> Archive::open(const std::string& path) {
  TRIREME_TRY(ZipReader zip, ZipReader::open(path));
  Archive archive(std::move(zip));
  TRIREME_TRY(std::string root, root_folder(archive.zip_));
  TRIREME_TRY(std::string model, model_name(archive.zip_, root));
  const std::string program_record = root + "models/" + model + ".json";
  TRIREME_TRY(auto program_bytes, archive.zip_.read(program_record));
  Result<Program> program = read_program(program_bytes, path);
  if (!program.ok()) return program.error();
  archive.graph_ = std::move(program.value().graph);
  archive.torch_version_ = std::move(program.value().torch_version);
  for (const std::string_view kind : {"weights", "constants"}) {
    const std::string folder = fmt::format("{}data/{}/", root, kind);
    const std::string record = fmt::format("{}{}_{}_config.json", folder, model, kind);
    if (!archive.zip_.has(record)) continue;
    TRIREME_TRY(auto bytes, archive.zip_.read(record));
    Result<TensorTable> table = read_tensor_table(bytes, path + ": " + record, folder);
    if (!table.ok()) return table.error();
    archive.tensors_.merge(table.value());
  }
  for (const GraphInput& input : archive.graph_.inputs) {
    if (input.kind != GraphInput::Kind::kUser && archive.find_tensor(input.names[0]) == nullptr) {
      return Error{fmt::format("{} is corrupted: nothing says where {} is stored", path,
                               input.names[0])};
    }
  }
  std::vector<std::vector<std::string>> ties =
      ties_by_record(archive.graph_, archive.tensors_, archive.zip_);
  if (const std::string record = root + "extra/trireme.json"; archive.zip_.has(record)) {
    TRIREME_TRY(auto bytes, archive.zip_.read(record));
    Result<std::vector<std::vector<std::string>>> groups = read_tie_groups(bytes, path + ": " + record);
    if (!groups.ok()) return groups.error();
    if (!groups.value().empty()) ties = std::move(groups.value());
  }
  TRIREME_TRY(merge_ties(archive.graph_, ties));
  remove_assertions(archive.graph_);
  drop_undefined_values(archive.graph_);
  if (Status status = verify_graph(archive.graph_); !status.ok()) {
    return Error{fmt::format("{} is corrupted: {}", path, status.error().message)};
  }
  return archive;
}

const StoredTensor* Archive::find_tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<std::span<const std::byte>> Archive::read_storage(const StoredTensor& tensor) const {
  TRIREME_TRY(std::span<const std::byte> bytes, zip_.read(tensor.record));
  // The last element of the tensor, in elements of the storage.
  auto last = static_cast<uint64_t>(tensor.storage_offset);
  bool is_empty = false;
  bool overflows = false;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    is_empty = is_empty || tensor.sizes[i] == 0;
    uint64_t span = 0;
    overflows = overflows || __builtin_mul_overflow(static_cast<uint64_t>(tensor.sizes[i] - 1),
                                                    static_cast<uint64_t>(tensor.strides[i]), &span) ||
                __builtin_add_overflow(last, span, &last);
  }
  const auto element = static_cast<uint64_t>(dtype_info(tensor.dtype).size_bytes);
  if (!is_empty && (overflows || last >= bytes.size() / element)) {
    return Error{fmt::format("{}: record {} has {} bytes, too few for its tensor", path(),
                             tensor.record, bytes.size())};
  }
  return bytes;
}

}  // namespace trireme
