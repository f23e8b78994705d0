#include "trireme/import/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

struct NumpyType {
  std::string_view descr;
  DType dtype;
};
constexpr std::array kTypes = {
    NumpyType{"|u1", DType::kUint8},   NumpyType{"|i1", DType::kInt8},
    NumpyType{"|b1", DType::kBool},    NumpyType{"<i2", DType::kInt16},
    NumpyType{"<i4", DType::kInt32},   NumpyType{"<i8", DType::kInt64},
    NumpyType{"<u2", DType::kUint16},  NumpyType{"<u4", DType::kUint32},
    NumpyType{"<u8", DType::kUint64},  NumpyType{"<f2", DType::kFloat16},
    NumpyType{"<f4", DType::kFloat32}, NumpyType{"<f8", DType::kFloat64},
};

// The text behind `'key':` in the header, a Python dict literal.
std::optional<std::string_view> header_field(std::string_view header, std::string_view key) {
  const size_t position = header.find(fmt::format("'{}':", key));
  if (position == std::string_view::npos) return std::nullopt;
  header.remove_prefix(position + key.size() + 3);
  while (!header.empty() && header[0] == ' ') header.remove_prefix(1);
  return header;
}

Result<std::vector<int64_t>> parse_shape(std::string_view text) {
  if (text.empty() || text[0] != '(') return Error{"its shape is malformed"};
  const auto take = [&text](char c) {
    while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
    const bool is_there = !text.empty() && text[0] == c;
    if (is_there) text.remove_prefix(1);
    return is_there;
  };
  take('(');
  std::vector<int64_t> sizes;
  while (!take(')')) {
    int64_t size = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (code != std::errc() || size < 0) return Error{"its shape is malformed"};
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    sizes.push_back(size);
    if (take(',')) continue;
    if (take(')')) break;
    return Error{"its shape is malformed"};
  }
  return sizes;
}

Result<TensorView> parse_npy(std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.size() < 12 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{"it is not an .npy file"};
  }
  if (const int version = std::to_integer<int>(bytes[6]); version < 1 || version > 3) {
    return Error{fmt::format("its .npy version is {}, and this reader knows 1 to 3", version)};
  }
  const bool is_long = std::to_integer<int>(bytes[6]) >= 2;
  uint32_t header_size = 0;
  std::memcpy(&header_size, bytes.data() + 8, is_long ? 4 : 2);
  const size_t start = is_long ? 12 : 10;
  if (header_size > bytes.size() - start) return Error{"it is truncated"};
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + start, header_size);
  const auto descr = header_field(header, "descr");
  const auto order = header_field(header, "fortran_order");
  const auto shape = header_field(header, "shape");
  if (!descr.has_value() || !order.has_value() || !shape.has_value() || descr->size() < 5) {
    return Error{"its header is malformed"};
  }
  TensorView view;
  const std::string_view type_name = descr->substr(1, 3);
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const NumpyType& row) {
    return row.descr == type_name && (*descr)[4] == (*descr)[0];
  });
  if (type == kTypes.end()) {
    return Error{
        fmt::format("its dtype {} is not supported", descr->substr(0, descr->find_first_of(",}")))};
  }
  view.dtype = type->dtype;
  if (!order->starts_with("False")) {
    return Error{"it is in Fortran order; save numpy.ascontiguousarray of it"};
  }
  TRIREME_TRY(view.sizes, parse_shape(*shape));
  const std::optional<uint64_t> expected = tensor_bytes(view.sizes, view.dtype);
  if (!expected.has_value()) return Error{"its shape is impossible"};
  view.bytes = bytes.subspan(start + header_size);
  if (view.bytes.size() < *expected) return Error{"it is truncated"};
  view.bytes = view.bytes.first(*expected);
  return view;
}

}  // namespace

Result<NpyFile> open_npy(const std::string& path) {
  TRIREME_TRY(MappedFile file, MappedFile::open(path));
  Result<TensorView> view = parse_npy(file.bytes());
  if (!view.ok()) return Error{one_line(while_doing(path, view.error()).message)};
  return NpyFile{.file = std::move(file), .array = std::move(view.value())};
}

}  // namespace trireme
