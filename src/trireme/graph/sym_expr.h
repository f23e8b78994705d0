// SymExpr: a number that may depend on symbolic sizes, such as the batch.
//
// Text form: an integer (`16`), a float (`0.5`), a symbol (`s72`), or a call over such expressions
// (`mul(s72,16)`). Functions are those of torch.export's size expressions; integer division and
// remainder floor as in Python.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

using SymValue = std::variant<int64_t, double>;
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

struct SymExpr {
  enum class Kind : uint8_t { kInteger, kFloat, kSymbol, kCall };

  Kind kind = Kind::kInteger;
  int64_t integer = 0;
  double number = 0;
  std::string name;  // of the symbol or the function
  std::vector<SymExpr> operands;

  SymExpr() = default;
  SymExpr(int64_t value) : integer(value) {}  // NOLINT(google-explicit-constructor)
  static SymExpr of_float(double value);
  static SymExpr of_symbol(std::string symbol);
  // Sums and products come out in one canonical form: flat, integers folded, operands sorted.
  static SymExpr of_call(std::string function, std::vector<SymExpr> operands);

  [[nodiscard]] bool is_integer() const { return kind == Kind::kInteger; }
  [[nodiscard]] bool is_symbol() const { return kind == Kind::kSymbol; }
  bool operator==(const SymExpr&) const = default;
};

[[nodiscard]] std::string to_text(const SymExpr& expression);
[[nodiscard]] Result<SymExpr> parse_sym_expr(std::string_view text);

[[nodiscard]] bool is_sym_function(std::string_view name);

// Errors: a symbol without a value, a division by zero.
[[nodiscard]] Result<SymValue> evaluate(const SymExpr& expression, const SymbolValues& symbols);
[[nodiscard]] Result<int64_t> evaluate_integer(const SymExpr& expression,
                                               const SymbolValues& symbols);
void collect_symbols(const SymExpr& expression, std::set<std::string>& symbols);

}  // namespace trireme
