#include "trireme/import/schema_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trireme::schema {
namespace {

struct DTypeCode {
  int64_t code;  // torch._export.serde.schema.ScalarType; not c10's numbers
  DType dtype;
};
constexpr std::array kDTypeCodes = {
    DTypeCode{1, DType::kUint8},      DTypeCode{2, DType::kInt8},
    DTypeCode{3, DType::kInt16},      DTypeCode{4, DType::kInt32},
    DTypeCode{5, DType::kInt64},      DTypeCode{6, DType::kFloat16},
    DTypeCode{7, DType::kFloat32},    DTypeCode{8, DType::kFloat64},
    DTypeCode{10, DType::kComplex64}, DTypeCode{11, DType::kComplex128},
    DTypeCode{12, DType::kBool},      DTypeCode{13, DType::kBFloat16},
    DTypeCode{28, DType::kUint16},
};

}  // namespace

const Json& as_array(const Json& json) {
  if (!json.is_array()) refuse("an array is expected, but found {}", json.type_name());
  return json;
}

const Json& array_at(const Json& json, std::string_view key) {
  const Json& member = json.at(std::string(key));
  if (!member.is_array()) refuse("'{}' is not an array but {}", key, member.type_name());
  return member;
}

const Json& object_at(const Json& json, std::string_view key) {
  const Json& member = json.at(std::string(key));
  if (!member.is_object()) refuse("'{}' is not an object but {}", key, member.type_name());
  return member;
}

int64_t integer_of(const Json& json) {
  if (!json.is_number_integer()) refuse("an integer is expected, but found {}", json.type_name());
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    refuse("the integer {} is too large", json.get<uint64_t>());
  }
  return json.get<int64_t>();
}

double float_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::nan("");
  refuse("'{}' is not a number", text);
}

std::string name_of(const Json& json) {
  auto name = json.get<std::string>();
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      refuse("the name '{}' has a control character", name);
    }
  }
  return name;
}

std::string identifier_of(const Json& json) {
  auto name = json.get<std::string>();
  const bool is_valid = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  if (!is_valid) refuse("'{}' is not a name", name);
  return name;
}

const std::string& union_kind(const Json& json) {
  if (!json.is_object() || json.size() != 1) refuse("an argument is not a union of one kind");
  return json.begin().key();
}

DType dtype_of(const Json& code) {
  const int64_t value = integer_of(code);
  for (const DTypeCode& row : kDTypeCodes) {
    if (row.code == value) return row.dtype;
  }
  refuse("tensors of torch._export ScalarType {} are not supported", value);
}

Json parse_json(std::span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  try {
    return Json::parse(text, text + bytes.size());
  } catch (const Json::parse_error& error) {
    refuse("its JSON is malformed at byte {} of {}", error.byte, bytes.size());
  }
}

std::string what_is_wrong(const Json::exception& exception) {
  const std::string_view what = exception.what();
  const size_t tag = what.find("] ");
  return std::string(tag == std::string_view::npos ? what : what.substr(tag + 2));
}

}  // namespace trireme::schema
