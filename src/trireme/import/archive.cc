#include "trireme/import/archive.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/graph/loss_items.h"
#include "trireme/graph/passes.h"
#include "trireme/import/program_reader.h"

namespace trireme {
namespace {

constexpr const char* kManifest = "extra/trireme.json";  // of trireme.export

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
  const auto has = [&](std::string_view ending) {
    return std::ranges::any_of(zip.names(),
                               [&](const std::string& name) { return name.ends_with(ending); });
  };
  const bool is_script = has("/constants.pkl");
  if (is_script || has("/data.pkl")) {
    return Error{fmt::format("{} is a {} file, not a .pt2; export the model with trireme.export",
                             zip.path(), is_script ? "TorchScript" : "torch.save")};
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

// Every node that reads `gone` reads `kept`.
void replace_reads(Graph& graph, ValueId gone, ValueId kept) {
  for (Node& node : graph.nodes) {
    for (NamedArgument& argument : node.arguments) {
      if (auto* id = std::get_if<ValueId>(&argument.value); id != nullptr && *id == gone) {
        *id = kept;
      }
      auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value);
      if (list != nullptr) {
        std::replace(list->begin(), list->end(), std::optional(gone), std::optional(kept));
      }
    }
  }
}

// Makes one parameter of several names that are tied, and every use read it.
Status merge_tie(Graph& graph, const std::vector<std::string>& group) {
  std::optional<size_t> first;
  for (size_t i = 0; i < graph.inputs.size();) {
    const GraphInput& input = graph.inputs[i];
    const bool is_member = input.kind == GraphInput::Kind::kParameter &&
                           std::find(group.begin(), group.end(), input.names[0]) != group.end();
    if (!is_member || !first.has_value()) {
      if (is_member) first = i;
      ++i;
      continue;
    }
    GraphInput& kept = graph.inputs[*first];
    const TensorType& type = graph.values[static_cast<size_t>(kept.value.value)].type;
    const TensorType& other = graph.values[static_cast<size_t>(input.value.value)].type;
    if (type.dtype != other.dtype || type.sizes != other.sizes) {
      return Error{fmt::format("the parameters {} and {} are tied but are {} and {}", kept.names[0],
                               input.names[0], to_text(type), to_text(other))};
    }
    replace_reads(graph, input.value, kept.value);
    kept.names.push_back(input.names[0]);
    kept.requires_grad = kept.requires_grad || input.requires_grad;
    graph.inputs.erase(graph.inputs.begin() + static_cast<int64_t>(i));
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

}  // namespace

Result<Archive> Archive::open(const std::string& path) {
  TRIREME_TRY(ZipReader zip, with_one_line_error(ZipReader::open(path)));
  Archive archive(std::move(zip));
  TRIREME_TRY(with_one_line_error(archive.read()));
  return archive;
}

Status Archive::read() {
  TRIREME_TRY(const std::string root, root_folder(zip_));
  TRIREME_TRY(const std::string model, model_name(zip_, root));
  TRIREME_TRY(auto program_bytes, zip_.read(root + "models/" + model + ".json"));
  TRIREME_TRY(Program program, read_program(program_bytes, path()));
  graph_ = std::move(program.graph);
  torch_version_ = std::move(program.torch_version);
  TRIREME_TRY(read_tables(root, model));
  TRIREME_TRY(verify_tensors());
  TRIREME_TRY(merge_tied_parameters(root));
  TRIREME_TRY(mark_inputs(root));
  remove_assertions(graph_);
  // The placeholders of merged ties leave values that nothing defines: they go as well.
  remove_dead_code(graph_);
  if (const Status status = verify_graph(graph_); !status.ok()) {
    return Error{fmt::format("{} is corrupted: {}", path(), status.error().message)};
  }
  derive_items(graph_);
  return Status();
}

Status Archive::read_tables(const std::string& root, const std::string& model) {
  for (const std::string_view kind : {"weights", "constants"}) {
    const std::string folder = fmt::format("{}data/{}/", root, kind);
    const std::string record = fmt::format("{}{}_{}_config.json", folder, model, kind);
    if (!zip_.has(record)) continue;
    TRIREME_TRY(auto bytes, zip_.read(record));
    TRIREME_TRY(TensorTable table, read_tensor_table(bytes, path() + ": " + record, folder));
    tensors_.merge(table);
  }
  return Status();
}

Status Archive::verify_tensors() const {
  for (const GraphInput& input : graph_.inputs) {
    if (input.kind == GraphInput::Kind::kUser) continue;
    const StoredTensor* stored = find_tensor(input.names[0]);
    if (stored == nullptr) {
      return Error{
          fmt::format("{} is corrupted: nothing says where {} is stored", path(), input.names[0])};
    }
    const TensorType& type = graph_.values[static_cast<size_t>(input.value.value)].type;
    const TensorType found{.dtype = stored->dtype,
                           .sizes = {stored->sizes.begin(), stored->sizes.end()},
                           .strides = {stored->strides.begin(), stored->strides.end()}};
    if (found.dtype != type.dtype || found.sizes != type.sizes) {
      return Error{fmt::format("{} is corrupted: {} is {} in the graph but stored as {}", path(),
                               input.names[0], to_text(type), to_text(found))};
    }
    // An archive without weights has no record, or an empty one.
    const Result<uint64_t> size = zip_.size(stored->record);
    if (size.ok() && size.value() > 0) TRIREME_TRY(verify_place(*stored, size.value()));
  }
  return Status();
}

Status Archive::merge_tied_parameters(const std::string& root) {
  std::vector<std::vector<std::string>> ties = ties_by_record(graph_, tensors_, zip_);
  const std::string record = root + kManifest;
  if (zip_.has(record)) {
    TRIREME_TRY(auto bytes, zip_.read(record));
    TRIREME_TRY(std::vector<std::vector<std::string>> groups,
                read_tie_groups(bytes, path() + ": " + record));
    if (!groups.empty()) ties = std::move(groups);
  }
  for (const std::vector<std::string>& group : ties) {
    if (const Status status = merge_tie(graph_, group); !status.ok()) {
      return Error{fmt::format("{} is corrupted: {}", path(), status.error().message)};
    }
  }
  return Status();
}

Status Archive::mark_inputs(const std::string& root) {
  const std::string record = root + kManifest;
  if (!zip_.has(record)) return Status();
  TRIREME_TRY(auto bytes, zip_.read(record));
  TRIREME_TRY(is_mean_over_samples_, read_mean_over_samples(bytes, path() + ": " + record));
  TRIREME_TRY(const std::vector<InputMark> marks, read_input_marks(bytes, path() + ": " + record));
  for (const InputMark& mark : marks) {
    const auto input =
        std::find_if(graph_.inputs.begin(), graph_.inputs.end(), [&](const GraphInput& each) {
          return each.kind == GraphInput::Kind::kUser && each.names[0] == mark.name;
        });
    if (input == graph_.inputs.end()) continue;  // a number that was baked in
    input->offsets = mark.offsets;
    if (!mark.batch_dim.has_value()) continue;
    const TensorType& type = graph_.values[static_cast<size_t>(input->value.value)].type;
    if (*mark.batch_dim >= type.sizes.size() || !type.sizes[*mark.batch_dim].is_symbol()) {
      return Error{fmt::format("{} is corrupted: {} says that dim {} of {} {} is the batch", path(),
                               record, *mark.batch_dim, mark.name, to_text(type))};
    }
    graph_.batch = type.sizes[*mark.batch_dim].name;
  }
  return Status();
}

const StoredTensor* Archive::find_tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

bool Archive::has_values(const StoredTensor& tensor) const {
  const Result<uint64_t> size = zip_.size(tensor.record);
  const bool is_absent = size.ok() && size.value() == 0;
  return !is_absent || tensor_bytes(tensor.sizes, tensor.dtype) == 0u;
}

int64_t Archive::num_parameters_without_values() const {
  return std::count_if(graph_.inputs.begin(), graph_.inputs.end(), [this](const GraphInput& input) {
    return input.kind == GraphInput::Kind::kParameter && !has_values(*find_tensor(input.names[0]));
  });
}

Result<std::span<const std::byte>> Archive::read_storage(const StoredTensor& tensor) const {
  TRIREME_TRY(std::span<const std::byte> bytes, with_one_line_error(zip_.read(tensor.record)));
  TRIREME_TRY(verify_place(tensor, bytes.size()));
  return bytes;
}

Status Archive::verify_place(const StoredTensor& tensor, uint64_t record_size) const {
  // The last element of the tensor, in elements of the storage.
  auto last = static_cast<uint64_t>(tensor.storage_offset);
  bool is_empty = false;
  bool overflows = false;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    is_empty = is_empty || tensor.sizes[i] == 0;
    uint64_t span = 0;
    overflows = overflows ||
                __builtin_mul_overflow(static_cast<uint64_t>(tensor.sizes[i] - 1),
                                       static_cast<uint64_t>(tensor.strides[i]), &span) ||
                __builtin_add_overflow(last, span, &last);
  }
  const auto element = static_cast<uint64_t>(dtype_info(tensor.dtype).size_bytes);
  if (!is_empty && (overflows || last >= record_size / element)) {
    return Error{one_line(fmt::format("{}: record {} has {} bytes, too few for its tensor", path(),
                                      tensor.record, record_size))};
  }
  return Status();
}

}  // namespace trireme
