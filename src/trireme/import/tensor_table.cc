// The tables that say where weights and constants lie, and which names are tied.
#include <vector>

#include "trireme/import/program_reader.h"
#include "trireme/import/schema_json.h"

namespace trireme {
namespace {

using schema::Json;

std::vector<int64_t> read_concrete(const Json& sizes) {
  std::vector<int64_t> concrete;
  for (const Json& size : sizes) {
    if (!size.contains("as_int")) schema::refuse("a stored tensor has a symbolic size");
    concrete.push_back(schema::integer_of(size.at("as_int")));
    if (concrete.back() < 0) {
      schema::refuse("a stored tensor has the negative size or stride {}", concrete.back());
    }
  }
  return concrete;
}

StoredTensor read_place(const Json& entry, const std::string& folder) {
  if (entry.at("use_pickle").get<bool>()) {
    schema::refuse(
        "it is a tensor subclass or an object stored by pickle, which is not supported; export the "
        "model with plain tensors");
  }
  const Json& meta = schema::object_at(entry, "tensor_meta");
  StoredTensor tensor;
  tensor.record = folder + schema::name_of(entry.at("path_name"));
  tensor.dtype = schema::dtype_of(meta.at("dtype"));
  if (const int64_t layout = schema::integer_of(meta.at("layout")); layout != 7) {
    schema::refuse("a tensor is not strided; sparse and other layouts are not supported");
  }
  tensor.sizes = read_concrete(schema::array_at(meta, "sizes"));
  tensor.strides = read_concrete(schema::array_at(meta, "strides"));
  tensor.storage_offset = schema::integer_of(meta.at("storage_offset").at("as_int"));
  if (tensor.sizes.size() != tensor.strides.size()) {
    schema::refuse("it has {} sizes but {} strides", tensor.sizes.size(), tensor.strides.size());
  }
  if (tensor.storage_offset < 0) {
    schema::refuse("it has the negative storage offset {}", tensor.storage_offset);
  }
  if (!tensor_bytes(tensor.sizes, tensor.dtype).has_value()) {
    schema::refuse("it has impossible sizes");
  }
  return tensor;
}

}  // namespace

Result<std::map<std::string, StoredTensor, std::less<>>> read_tensor_table(
    std::span<const std::byte> json, const std::string& record, const std::string& folder) {
  using Table = std::map<std::string, StoredTensor, std::less<>>;
  return schema::reading<Table>(record, [&] {
    Table table;
    const Json parsed = schema::parse_json(json);
    for (const auto& [name, entry] : schema::object_at(parsed, "config").items()) {
      try {
        table[name] = read_place(entry, folder);
      } catch (const schema::Refusal& refusal) {
        throw schema::Refusal{fmt::format("{}: {}", name, refusal.message)};
      } catch (const Json::exception& exception) {
        throw schema::Refusal{
            fmt::format("{} is malformed: {}", name, schema::what_is_wrong(exception))};
      }
    }
    return table;
  });
}

Result<std::vector<std::vector<std::string>>> read_tie_groups(std::span<const std::byte> json,
                                                              const std::string& record) {
  using Groups = std::vector<std::vector<std::string>>;
  return schema::reading<Groups>(record, [&] {
    const Json parsed = schema::parse_json(json);
    if (!parsed.contains("ties")) return Groups();
    return parsed.at("ties").get<Groups>();
  });
}

Result<std::vector<InputMark>> read_input_marks(std::span<const std::byte> json,
                                                const std::string& record) {
  using Marks = std::vector<InputMark>;
  return schema::reading<Marks>(record, [&] {
    const Json parsed = schema::parse_json(json);
    Marks marks;
    if (!parsed.contains("inputs")) return marks;
    for (const Json& entry : schema::array_at(parsed, "inputs")) {
      InputMark mark{.name = entry.at("name").get<std::string>(), .batch_dim = {}, .offsets = {}};
      if (entry.contains("batch_dim")) mark.batch_dim = entry.at("batch_dim").get<size_t>();
      if (entry.contains("offsets")) mark.offsets = entry.at("offsets").get<std::string>();
      marks.push_back(std::move(mark));
    }
    return marks;
  });
}

Result<bool> read_mean_over_samples(std::span<const std::byte> json, const std::string& record) {
  return schema::reading<bool>(record, [&] {
    const Json parsed = schema::parse_json(json);
    return !parsed.contains("mean_over_samples") || parsed.at("mean_over_samples").get<bool>();
  });
}

}  // namespace trireme
