// Whether the folder that a program was started in is still there.
#pragma once

#include "trireme/base/result.h"

namespace trireme {

// Error when it has been removed: no relative path leads anywhere, and libtorch, which loads its
// own libraries by its path, ends a worker before its first line.
[[nodiscard]] Status check_current_folder();

}  // namespace trireme
