// How this layer reads JSON that anybody may have written: strictly, so that what is not as
// torch.export writes it is refused and never read as something else.
//
// nlohmann-json reports a missing key or a wrong type by an exception. The readers of the schema
// throw their own findings as well (refuse), and reading() turns both into an Error at their
// border. Included by those readers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/one_line.h"
#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"

namespace trireme::schema {

using Json = nlohmann::json;

struct Refusal {
  std::string message;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{fmt::format(format, std::forward<Args>(args)...)};
}

template <typename T>
T unwrap_or_refuse(Result<T> result) {
  if (!result.ok()) throw Refusal{result.error().message};
  return std::move(result).value();
}

// The member, an array or an object. nlohmann-json iterates over numbers and null as well.
const Json& array_at(const Json& json, std::string_view key);
const Json& object_at(const Json& json, std::string_view key);
const Json& as_array(const Json& json);

// Nothing but an integer in the range of int64_t; nlohmann-json converts floats and bools as well.
int64_t integer_of(const Json& json);
// A number, or one of the words that stand for infinity and NaN in the schema.
double float_of(const Json& json);
// A string without control characters, which would break lines of text forms and messages.
std::string name_of(const Json& json);
// The name of a tensor, an operator or an argument: letters, digits, '_' and '.'.
std::string identifier_of(const Json& json);
// The one key of a union: {"as_int": 3}.
const std::string& union_kind(const Json& json);
DType dtype_of(const Json& code);

Json parse_json(std::span<const std::byte> bytes);

// What an exception of nlohmann-json says, without its tag.
std::string what_is_wrong(const Json::exception& exception);

// Runs `body`, which may throw, and names the record in what it says.
template <typename T, typename Body>
Result<T> reading(const std::string& record, Body body) {
  try {
    return body();
  } catch (const Refusal& refusal) {
    return Error{one_line(fmt::format("{}: {}", record, refusal.message))};
  } catch (const Json::exception& exception) {
    return Error{one_line(fmt::format("{} is corrupted: {}", record, what_is_wrong(exception)))};
  }
}

}  // namespace trireme::schema
