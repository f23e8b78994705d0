#include "trireme/import/sympy_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

struct SympyFunction {
  std::string_view sympy;
  std::string_view ours;
};

constexpr std::array kFunctions = {
    SympyFunction{"Add", "add"},
    SympyFunction{"Mul", "mul"},
    SympyFunction{"Min", "min"},
    SympyFunction{"Max", "max"},
    SympyFunction{"Pow", "pow"},
    SympyFunction{"FloorDiv", "floordiv"},
    SympyFunction{"CleanDiv", "floordiv"},
    SympyFunction{"PowByNatural", "pow"},
    SympyFunction{"FloatPow", "pow"},
    SympyFunction{"Mod", "mod"},
    SympyFunction{"PythonMod", "mod"},
    SympyFunction{"IntTrueDiv", "truediv"},
    SympyFunction{"FloatTrueDiv", "truediv"},
    SympyFunction{"ToFloat", "float"},
    SympyFunction{"TruncToInt", "trunc"},
    SympyFunction{"FloorToInt", "floor"},
    SympyFunction{"CeilToInt", "ceil"},
    SympyFunction{"OpaqueUnaryFn_sqrt", "sqrt"},
    SympyFunction{"Equality", "eq"},
    SympyFunction{"Eq", "eq"},
    SympyFunction{"Unequality", "ne"},
    SympyFunction{"Ne", "ne"},
    SympyFunction{"StrictLessThan", "lt"},
    SympyFunction{"LessThan", "le"},
    SympyFunction{"StrictGreaterThan", "gt"},
    SympyFunction{"GreaterThan", "ge"},
    SympyFunction{"Not", "not"},
};

class SympyParser {
 public:
  explicit SympyParser(std::string_view text) : rest_(text) {}

  Result<SymExpr> parse_all() {
    TRIREME_TRY(SymExpr expression, parse(0));
    if (!rest_.empty()) return malformed();
    return expression;
  }

 private:
  Error malformed() const {
    return Error{fmt::format("a size expression is malformed at '{}'", one_line(rest_, 24))};
  }

  void skip_spaces() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_spaces();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view take_name() {
    skip_spaces();
    size_t length = 0;
    while (length < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 ||
                                     rest_[length] == '_' || rest_[length] == '.')) {
      ++length;
    }
    const std::string_view name = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return name;
  }
  // The rest of an argument list whose contents do not matter, with its closing parenthesis.
  bool skip_to_close() {
    const size_t close = rest_.find(')');
    if (close == std::string_view::npos) return false;
    rest_.remove_prefix(close + 1);
    return true;
  }

  Result<SymExpr> parse_symbol() {
    if (!take('\'')) return malformed();
    const size_t quote = rest_.find('\'');
    if (quote == std::string_view::npos || quote == 0) return malformed();
    const std::string name(rest_.substr(0, quote));
    // The text form of sizes tells symbols from numbers by their first letter.
    const bool is_name = std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                         std::all_of(name.begin(), name.end(), [](char c) {
                           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                         });
    if (!is_name) return malformed();
    rest_.remove_prefix(quote + 1);
    if (!skip_to_close()) return malformed();
    return SymExpr::of_symbol(name);
  }

  Result<int64_t> parse_integer() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc()) return malformed();
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  Result<SymExpr> parse_float() {
    if (!take('\'')) return malformed();
    const std::string digits(rest_.substr(0, rest_.find('\'')));
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0' || !skip_to_close()) return malformed();
    return SymExpr::of_float(value);
  }

  Result<SymExpr> parse_call(std::string_view name, int depth) {
    for (const SympyFunction& function : kFunctions) {
      if (function.sympy != name) continue;
      std::vector<SymExpr> operands;
      do {
        TRIREME_TRY(SymExpr operand, parse(depth + 1));
        operands.push_back(std::move(operand));
      } while (take(','));
      if (!take(')')) return malformed();
      const bool takes_one = function.ours == "float" || function.ours == "trunc" ||
                             function.ours == "floor" || function.ours == "ceil" ||
                             function.ours == "sqrt" || function.ours == "not";
      const bool takes_any = function.ours == "add" || function.ours == "mul" ||
                             function.ours == "min" || function.ours == "max";
      if (!takes_any && operands.size() != (takes_one ? 1u : 2u)) return malformed();
      return SymExpr::of_call(std::string(function.ours), std::move(operands));
    }
    return Error{fmt::format("sizes with the function {} are not supported", one_line(name, 60))};
  }

  Result<SymExpr> parse(int depth) {
    if (depth > 64) return Error{"a size expression is nested deeper than 64"};
    const std::string_view name = take_name();
    if (name.empty()) return malformed();
    if (!take('(')) {
      int64_t value = 0;
      const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), value);
      if (code == std::errc() && end == name.data() + name.size()) return SymExpr(value);
      if (name == "true" || name == "false") return SymExpr(int64_t{name == "true"});
      return malformed();
    }
    if (name == "Symbol") return parse_symbol();
    if (name == "Float") return parse_float();
    if (name == "Integer") {
      TRIREME_TRY(int64_t value, parse_integer());
      if (!take(')')) return malformed();
      return SymExpr(value);
    }
    if (name == "Rational") {
      TRIREME_TRY(int64_t numerator, parse_integer());
      if (!take(',')) return malformed();
      TRIREME_TRY(int64_t denominator, parse_integer());
      if (!take(')')) return malformed();
      return SymExpr::of_call("truediv", {SymExpr(numerator), SymExpr(denominator)});
    }
    return parse_call(name, depth);
  }

  std::string_view rest_;
};

}  // namespace

Result<SymExpr> parse_sympy(std::string_view text) { return SympyParser(text).parse_all(); }

}  // namespace trireme
