// TRIREME_CHECK: an invariant of this program, always on.
//
// For what the user, the model or the cluster can get wrong, return a Result instead (result.h).
#pragma once

#include <string_view>

namespace trireme {

// Prints the message with its place and aborts. Never returns.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace trireme

#define TRIREME_CHECK(condition, message)                               \
  do {                                                                  \
    if (!(condition)) [[unlikely]] {                                    \
      ::trireme::check_failed(__FILE__, __LINE__, #condition, message); \
    }                                                                   \
  } while (false)
