// Native replacements: operators that popular libraries define in Python only, registered with the
// dispatcher under their own names, so that archives that hold them run.
//
// One row of kRows (native_operators.cc) an operator, beside its rule in kRules (op_rules.cc): an
// operator outside of aten that has a rule is one that has a replacement.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

// Registers what no library has registered before. Once a process; later calls do nothing.
// Thread-safe. Errors: torch refuses a registration.
Status register_native_operators();

// "transformers.grouped_mm_fallback" and so on, in the order of the table.
[[nodiscard]] std::vector<std::string> native_operator_names();

}  // namespace trireme
