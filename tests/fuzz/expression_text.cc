// Sizes as expressions: our text form, and sympy's.

#include "trireme/graph/sym_expr.h"
#include "trireme/import/sympy_reader.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const SymbolValues symbols = {{"s0", int64_t{3}}, {"s1", int64_t{-4}}, {"s2", INT64_MAX}};
  for (const Result<SymExpr>& parsed : {parse_sym_expr(text), parse_sympy(text)}) {
    if (!fuzz::is_accepted(parsed)) continue;
    fuzz::expect_text_form(parsed.value(), parse_sym_expr);
    static_cast<void>(fuzz::is_accepted(evaluate(parsed.value(), symbols)));
    static_cast<void>(fuzz::is_accepted(evaluate_integer(parsed.value(), symbols)));
  }
  return 0;
}
