// Reads a size as torch.export writes it: the `srepr` of a sympy expression, such as
// Mul(Integer(16), Symbol('s72', positive=True, integer=True)).
#pragma once

#include <string_view>

#include "trireme/base/result.h"
#include "trireme/graph/sym_expr.h"

namespace trireme {

// Errors: a function that is not known, a malformed expression.
[[nodiscard]] Result<SymExpr> parse_sympy(std::string_view text);

}  // namespace trireme
