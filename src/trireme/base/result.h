// Result<T> and Status: the outcome of what the input, the model or the cluster can make fail.
//
//   Result<Plan> read_plan(std::string_view path);
//
//   Status verify(std::string_view path) {
//     TRIREME_TRY(Plan plan, read_plan(path));        // returns the error, or binds the value
//     TRIREME_TRY(verify_plan(plan));                 // the same for a Status
//     return Status();
//   }
//
// A message is one sentence without a full stop that names the object, the value found, the value
// expected, and what the user can do. TRIREME_TRY must stand on its own line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "trireme/base/check.h"

namespace trireme {

struct Error {
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  // REQUIRES: ok().
  [[nodiscard]] T& value() & {
    TRIREME_CHECK(ok(), std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  [[nodiscard]] const T& value() const& {
    TRIREME_CHECK(ok(), std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  [[nodiscard]] T value() && {
    TRIREME_CHECK(ok(), std::get<Error>(state_).message);
    return std::get<T>(std::move(state_));
  }
  // REQUIRES: !ok().
  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  // REQUIRES: !ok().
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Puts what was being done before the message: "reading plan.yaml: line 3 ...".
inline Error while_doing(std::string_view what, const Error& error) {
  return Error{std::string(what) + ": " + error.message};
}

namespace internal {
template <typename T>
T&& unwrap(Result<T>& result) {
  return std::move(result.value());
}
}  // namespace internal

}  // namespace trireme

#define TRIREME_CONCAT_INNER(a, b) a##b
#define TRIREME_CONCAT(a, b) TRIREME_CONCAT_INNER(a, b)
#define TRIREME_TRY_STATUS(expression)                               \
  if (auto TRIREME_CONCAT(trireme_status_, __LINE__) = (expression); \
      !TRIREME_CONCAT(trireme_status_, __LINE__).ok()) {             \
    return TRIREME_CONCAT(trireme_status_, __LINE__).error();        \
  }
#define TRIREME_TRY_VALUE(declaration, ...)                       \
  auto TRIREME_CONCAT(trireme_result_, __LINE__) = (__VA_ARGS__); \
  if (!TRIREME_CONCAT(trireme_result_, __LINE__).ok()) {          \
    return TRIREME_CONCAT(trireme_result_, __LINE__).error();     \
  }                                                               \
  declaration = ::trireme::internal::unwrap(TRIREME_CONCAT(trireme_result_, __LINE__))
#define TRIREME_TRY_PICK(_1, _2, _3, _4, _5, _6, NAME, ...) NAME
// TRIREME_TRY(status) or TRIREME_TRY(declaration, result): see the top of this file.
#define TRIREME_TRY(...)                                                                 \
  TRIREME_TRY_PICK(__VA_ARGS__, TRIREME_TRY_VALUE, TRIREME_TRY_VALUE, TRIREME_TRY_VALUE, \
                   TRIREME_TRY_VALUE, TRIREME_TRY_VALUE, TRIREME_TRY_STATUS, )(__VA_ARGS__)
