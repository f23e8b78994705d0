// Operator libraries: shared libraries that register operators of other name spaces than aten with
// torch's dispatcher (TORCH_LIBRARY), forward and autograd. Torch-free to include.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"

namespace trireme {

// Loads the libraries, in order, into this process, and after them the native replacements of what
// none of them registers (native_operators.h). Loading one again does nothing.
// Errors: a file that the system cannot load, two that register the same operator.
Status load_operator_libraries(const std::vector<std::string>& paths);

// Each node of another name space than aten fits a registered operator: name, arguments, results.
// An operator that changes an argument says so by a name that ends in `_`: cuts rely on it.
// `paths` for the message.
[[nodiscard]] Status check_library_operators(const Graph& graph,
                                             const std::vector<std::string>& paths);

}  // namespace trireme
