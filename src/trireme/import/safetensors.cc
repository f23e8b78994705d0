#include "trireme/import/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/one_line.h"
#include "trireme/import/unique_json.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

Result<TensorView> read_entry(const std::string& name, const Json& entry,
                              std::span<const std::byte> data) {
  const auto malformed = [&](std::string_view what) {
    return Error{fmt::format("tensor {} has {}", name, what)};
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return malformed("a malformed entry");
  }
  TensorView view;
  const auto dtype_name = entry["dtype"].get<std::string>();
  const std::optional<DType> dtype = dtype_from_safetensors(dtype_name);
  if (!dtype.has_value()) return malformed(fmt::format("the unknown dtype '{}'", dtype_name));
  view.dtype = *dtype;
  for (const Json& size : entry["shape"]) {
    if (!size.is_number_unsigned()) return malformed("a malformed shape");
    view.sizes.push_back(size.get<int64_t>());
  }
  const std::optional<uint64_t> expected = tensor_bytes(view.sizes, view.dtype);
  if (!expected.has_value()) return malformed("an impossible shape");
  if (!entry["data_offsets"][0].is_number_unsigned() ||
      !entry["data_offsets"][1].is_number_unsigned()) {
    return malformed("malformed offsets");
  }
  const auto begin = entry["data_offsets"][0].get<uint64_t>();
  const auto end = entry["data_offsets"][1].get<uint64_t>();
  if (begin > end || end > data.size()) return malformed("bytes outside the file");
  if (end - begin != *expected) return malformed("another number of bytes than its shape says");
  view.bytes = data.subspan(begin, end - begin);
  return view;
}

// Bytes that belong to two tensors are a mistake of the writer.
Status verify_tensors_are_apart(const std::map<std::string, TensorView, std::less<>>& tensors) {
  std::vector<std::pair<const std::string*, std::span<const std::byte>>> places;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.bytes.empty()) places.emplace_back(&name, tensor.bytes);
  }
  std::sort(places.begin(), places.end(),
            [](const auto& a, const auto& b) { return a.second.data() < b.second.data(); });
  for (size_t i = 1; i < places.size(); ++i) {
    const std::span<const std::byte> before = places[i - 1].second;
    if (before.data() + before.size() > places[i].second.data()) {
      return Error{fmt::format("the bytes of the tensors {} and {} overlap", *places[i - 1].first,
                               *places[i].first)};
    }
  }
  return Status();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  TRIREME_TRY(MappedFile mapped, MappedFile::open(path));
  SafetensorsFile file(std::move(mapped));
  if (const Status status = file.read_header(); !status.ok()) {
    return Error{one_line(while_doing(path, status.error()).message)};
  }
  return file;
}

Status SafetensorsFile::read_header() {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < 8) return Error{"it is not a safetensors file: it is shorter than 8 bytes"};
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  if (header_size > bytes.size() - 8) {
    return Error{fmt::format(
        "it is truncated or not a safetensors file: its header of {} bytes ends outside the file",
        header_size)};
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const Result<Json> header = parse_unique_json({text, header_size});
  if (!header.ok()) {
    return Error{
        fmt::format("it is not a safetensors file: its header {}", header.error().message)};
  }
  for (const auto& [name, entry] : header.value().items()) {
    if (name == "__metadata__") continue;
    TRIREME_TRY(tensors_[name], read_entry(name, entry, bytes.subspan(8 + header_size)));
  }
  return verify_tensors_are_apart(tensors_);
}

}  // namespace trireme
