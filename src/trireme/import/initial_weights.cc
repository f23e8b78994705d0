#include "trireme/import/initial_weights.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/import/unique_json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kFileName = "model.safetensors";

// The file in a folder that says which tensors there are.
Result<std::string> main_file(const std::string& folder) {
  std::error_code ignored;
  const std::string index = fs::path(folder) / kIndexName;
  const std::string file = fs::path(folder) / kFileName;
  const bool has_index = fs::exists(index, ignored);
  const bool has_file = fs::exists(file, ignored);
  if (has_index && has_file) {
    return Error{fmt::format("the folder {} holds both {} and {}; name one of them", folder,
                             kIndexName, kFileName)};
  }
  if (!has_index && !has_file) {
    return Error{
        fmt::format("the folder {} holds neither {} nor {}; save the weights there with "
                    "save_pretrained, or name a safetensors file",
                    folder, kIndexName, kFileName)};
  }
  return has_index ? index : file;
}

// Everything that an index names lies in its own folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<InitialWeights> InitialWeights::open(const std::string& path) {
  std::error_code ignored;
  InitialWeights weights(path);
  if (fs::is_directory(path, ignored)) {
    TRIREME_TRY(weights.path_, main_file(path));
  }
  weights.has_index_ = weights.path_.ends_with(".json");
  TRIREME_TRY(with_one_line_error(weights.has_index_ ? weights.read_index() : weights.read_file()));
  return weights;
}

std::vector<std::string> InitialWeights::files() const {
  std::vector<std::string> files = {path_};
  for (const Shard& shard : shards_) {
    if (has_index_) files.push_back(shard.path);
  }
  return files;
}

Status InitialWeights::read_file() {
  TRIREME_TRY(SafetensorsFile file, SafetensorsFile::open(path_));
  for (const auto& [name, tensor] : file.tensors()) shard_of_[name] = 0;
  shards_.push_back({path_, std::move(file)});
  return Status();
}

Status InitialWeights::read_index() {
  TRIREME_TRY(MappedFile file, MappedFile::open(path_));
  const std::span<const std::byte> bytes = file.bytes();
  const Result<nlohmann::json> index =
      parse_unique_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!index.ok()) return Error{fmt::format("the index {} {}", path_, index.error().message)};
  if (!index.value().contains("weight_map") || !index.value()["weight_map"].is_object()) {
    return Error{fmt::format("the index {} has no weight_map of tensors to files", path_)};
  }
  std::map<std::string, size_t> shards;  // by file name
  for (const auto& [name, shard] : index.value()["weight_map"].items()) {
    if (!shard.is_string() || !is_plain_name(shard)) {
      return Error{
          fmt::format("the index {} puts {} into {}, which is not the name of a file "
                      "beside it",
                      path_, name, shard.dump())};
    }
    const auto [place, is_new] = shards.try_emplace(shard.get<std::string>(), shards_.size());
    if (is_new) shards_.push_back({fs::path(path_).parent_path() / place->first, std::nullopt});
    shard_of_[name] = place->second;
  }
  return Status();
}

std::vector<std::string> InitialWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_of_) names.push_back(name);
  return names;
}

Status InitialWeights::map(std::string_view name) {
  const auto place = shard_of_.find(name);
  TRIREME_CHECK(place != shard_of_.end(), "a tensor that the weights lack is mapped");
  Shard& shard = shards_[place->second];
  if (!shard.file.has_value()) {
    TRIREME_TRY(shard.file, SafetensorsFile::open(shard.path));
  }
  if (shard.file->tensors().contains(name)) return Status();
  return Error{one_line(fmt::format("the index {} puts {} into {}, which has no such tensor", path_,
                                    name, fs::path(shard.path).filename().string()))};
}

const TensorView* InitialWeights::find(std::string_view name) const {
  const auto place = shard_of_.find(name);
  if (place == shard_of_.end()) return nullptr;
  const Shard& shard = shards_[place->second];
  if (!shard.file.has_value()) return nullptr;
  const auto found = shard.file->tensors().find(name);
  return found == shard.file->tensors().end() ? nullptr : &found->second;
}

void InitialWeights::release(std::string_view name) const {
  const TensorView* tensor = find(name);
  if (tensor != nullptr) shards_[shard_of_.find(name)->second].file->file().release(tensor->bytes);
}

}  // namespace trireme
