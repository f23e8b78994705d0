// guard(): runs what may throw inside libtorch and turns the exception into an Error.
#pragma once

#include <exception>
#include <string>
#include <type_traits>

#include <c10/util/Exception.h>

#include "trireme/base/result.h"

namespace trireme {

// The first line of what libtorch says; its text carries a backtrace behind it.
[[nodiscard]] std::string exception_text(const std::exception& exception);
// Without its hint to a function of Python, which nobody can call here.
[[nodiscard]] std::string without_hint(std::string text);

// `body` returns a Result or a Status, or nothing.
template <typename Body>
auto guard(Body body) {
  using Returned = std::invoke_result_t<Body>;
  using Outcome = std::conditional_t<std::is_void_v<Returned>, Status, Returned>;
  try {
    if constexpr (std::is_void_v<Returned>) {
      body();
      return Outcome();
    } else {
      return Outcome(body());
    }
  } catch (const c10::Error& error) {
    return Outcome(Error{without_hint(error.what_without_backtrace())});
  } catch (const std::exception& exception) {
    return Outcome(Error{exception_text(exception)});
  }
}

}  // namespace trireme
