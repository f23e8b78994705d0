#include "trireme/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace trireme {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "trireme: internal error at %s:%d: %.*s (%s)\n", file, line,
               static_cast<int>(message.size()), message.data(), condition);
  std::abort();
}

}  // namespace trireme
