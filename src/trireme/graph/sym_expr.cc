#include "trireme/graph/sym_expr.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

using Values = std::vector<SymValue>;

double as_double(const SymValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

bool all_integers(const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [](const SymValue& v) { return std::holds_alternative<int64_t>(v); });
}

Error too_large() { return Error{"a size does not fit 64 bits"}; }

// `integer_op` says by nullopt that its result does not fit.
template <typename IntegerOp, typename FloatOp>
Result<SymValue> fold(const Values& values, IntegerOp integer_op, FloatOp float_op) {
  if (all_integers(values)) {
    int64_t sum = std::get<int64_t>(values[0]);
    for (size_t i = 1; i < values.size(); ++i) {
      const std::optional<int64_t> next = integer_op(sum, std::get<int64_t>(values[i]));
      if (!next.has_value()) return too_large();
      sum = *next;
    }
    return SymValue(sum);
  }
  double sum = as_double(values[0]);
  for (size_t i = 1; i < values.size(); ++i) sum = float_op(sum, as_double(values[i]));
  return SymValue(sum);
}

std::optional<int64_t> sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional(sum);
}
std::optional<int64_t> product_of(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

// Converting a double outside the range, or NaN, is undefined.
Result<SymValue> to_integer(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value >= -kLimit && value < kLimit)) return too_large();
  return SymValue(static_cast<int64_t>(value));
}

Result<SymValue> add(const Values& v) {
  return fold(v, sum_of, [](double a, double b) { return a + b; });
}
Result<SymValue> mul(const Values& v) {
  return fold(v, product_of, [](double a, double b) { return a * b; });
}
Result<SymValue> minimum(const Values& v) {
  return fold(
      v, [](int64_t a, int64_t b) { return std::optional(std::min(a, b)); },
      [](double a, double b) { return std::min(a, b); });
}
Result<SymValue> maximum(const Values& v) {
  return fold(
      v, [](int64_t a, int64_t b) { return std::optional(std::max(a, b)); },
      [](double a, double b) { return std::max(a, b); });
}

Result<SymValue> floor_div(const Values& v) {
  if (as_double(v[1]) == 0) return Error{"a size is divided by zero"};
  if (!all_integers(v)) return SymValue(std::floor(as_double(v[0]) / as_double(v[1])));
  const int64_t a = std::get<int64_t>(v[0]);
  const int64_t b = std::get<int64_t>(v[1]);
  if (b == -1 && a == std::numeric_limits<int64_t>::min()) return too_large();
  const int64_t quotient = a / b;
  return SymValue(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}

Result<SymValue> modulo(const Values& v) {
  if (as_double(v[1]) == 0) return Error{"a size is divided by zero"};
  if (!all_integers(v)) {
    return SymValue(as_double(v[0]) -
                    as_double(v[1]) * std::floor(as_double(v[0]) / as_double(v[1])));
  }
  const int64_t b = std::get<int64_t>(v[1]);
  if (b == -1) return SymValue(int64_t{0});  // the quotient by -1 may not fit
  const int64_t remainder = std::get<int64_t>(v[0]) % b;
  return SymValue(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

Result<SymValue> power(const Values& v) {
  const double result = std::pow(as_double(v[0]), as_double(v[1]));
  if (all_integers(v) && std::get<int64_t>(v[1]) >= 0) {
    return to_integer(std::round(result));
  }
  return SymValue(result);
}

Result<SymValue> true_div(const Values& v) {
  if (as_double(v[1]) == 0) return Error{"a size is divided by zero"};
  return SymValue(as_double(v[0]) / as_double(v[1]));
}

Result<SymValue> to_float(const Values& v) { return SymValue(as_double(v[0])); }
Result<SymValue> truncate(const Values& v) { return to_integer(std::trunc(as_double(v[0]))); }
Result<SymValue> floor_to_int(const Values& v) { return to_integer(std::floor(as_double(v[0]))); }
Result<SymValue> ceil_to_int(const Values& v) { return to_integer(std::ceil(as_double(v[0]))); }
Result<SymValue> square_root(const Values& v) { return SymValue(std::sqrt(as_double(v[0]))); }
Result<SymValue> equal(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) == as_double(v[1])});
}
Result<SymValue> not_equal(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) != as_double(v[1])});
}
Result<SymValue> less(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) < as_double(v[1])});
}
Result<SymValue> less_equal(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) <= as_double(v[1])});
}
Result<SymValue> greater(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) > as_double(v[1])});
}
Result<SymValue> greater_equal(const Values& v) {
  return SymValue(int64_t{as_double(v[0]) >= as_double(v[1])});
}
Result<SymValue> logical_not(const Values& v) { return SymValue(int64_t{as_double(v[0]) == 0}); }

struct SymFunction {
  std::string_view name;
  size_t min_operands;
  size_t max_operands;
  Result<SymValue> (*evaluate)(const Values&);
};

constexpr size_t kAny = 1 << 20;
constexpr std::array kFunctions = {
    SymFunction{"add", 1, kAny, add},         SymFunction{"mul", 1, kAny, mul},
    SymFunction{"min", 1, kAny, minimum},     SymFunction{"max", 1, kAny, maximum},
    SymFunction{"floordiv", 2, 2, floor_div}, SymFunction{"mod", 2, 2, modulo},
    SymFunction{"pow", 2, 2, power},          SymFunction{"truediv", 2, 2, true_div},
    SymFunction{"float", 1, 1, to_float},     SymFunction{"trunc", 1, 1, truncate},
    SymFunction{"floor", 1, 1, floor_to_int}, SymFunction{"ceil", 1, 1, ceil_to_int},
    SymFunction{"sqrt", 1, 1, square_root},   SymFunction{"eq", 2, 2, equal},
    SymFunction{"ne", 2, 2, not_equal},       SymFunction{"lt", 2, 2, less},
    SymFunction{"le", 2, 2, less_equal},      SymFunction{"gt", 2, 2, greater},
    SymFunction{"ge", 2, 2, greater_equal},   SymFunction{"not", 1, 1, logical_not},
};

const SymFunction* find_function(std::string_view name) {
  for (const SymFunction& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Recursive descent over `text`; `position` moves past what was read.
Result<SymExpr> parse_at(std::string_view text, size_t& position, int depth) {
  if (depth > 64) return Error{"the size expression is nested deeper than 64"};
  const size_t start = position;
  if (position < text.size() &&
      (text[position] == '-' || std::isdigit(static_cast<unsigned char>(text[position])) != 0)) {
    ++position;
    while (position < text.size() &&
           (is_name_character(text[position]) || text[position] == '.' ||
            ((text[position] == '-' || text[position] == '+') && text[position - 1] == 'e'))) {
      ++position;
    }
    const std::string token(text.substr(start, position - start));
    int64_t integer = 0;
    const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), integer);
    if (code == std::errc() && end == token.data() + token.size()) return SymExpr(integer);
    if (token == "0nan") return SymExpr::of_float(std::nan(""));
    char* float_end = nullptr;
    const double number = std::strtod(token.c_str(), &float_end);
    if (*float_end != '\0') return Error{fmt::format("'{}' is not a number", one_line(token, 60))};
    return SymExpr::of_float(number);
  }
  while (position < text.size() && is_name_character(text[position])) ++position;
  std::string name(text.substr(start, position - start));
  if (name.empty())
    return Error{fmt::format("a size is missing at '{}'", one_line(text.substr(start), 12))};
  if (position >= text.size() || text[position] != '(') return SymExpr::of_symbol(std::move(name));
  const SymFunction* function = find_function(name);
  if (function == nullptr)
    return Error{fmt::format("unknown size function '{}'", one_line(name, 60))};
  std::vector<SymExpr> operands;
  do {
    ++position;
    TRIREME_TRY(SymExpr operand, parse_at(text, position, depth + 1));
    operands.push_back(std::move(operand));
  } while (position < text.size() && text[position] == ',');
  if (position >= text.size() || text[position] != ')') {
    return Error{fmt::format("'{}' lacks its closing parenthesis", name)};
  }
  ++position;
  if (operands.size() < function->min_operands || operands.size() > function->max_operands) {
    return Error{fmt::format("'{}' has {} operands", name, operands.size())};
  }
  return SymExpr::of_call(std::move(name), std::move(operands));
}

// Sums and products: nested ones flattened, integers folded into one, operands in text order.
SymExpr canonical_fold(const std::string& function, std::vector<SymExpr> operands) {
  const bool is_sum = function == "add";
  int64_t integer = is_sum ? 0 : 1;
  std::vector<std::pair<std::string, SymExpr>> others;
  for (size_t i = 0; i < operands.size(); ++i) {
    SymExpr operand = std::move(operands[i]);
    const std::optional<int64_t> folded = !operand.is_integer() ? std::nullopt
                                          : is_sum              ? sum_of(integer, operand.integer)
                                                   : product_of(integer, operand.integer);
    // What does not fit stays unfolded, and is an error when it is evaluated.
    if (folded.has_value()) {
      integer = *folded;
    } else if (operand.kind == SymExpr::Kind::kCall && operand.name == function) {
      for (SymExpr& inner : operand.operands) operands.push_back(std::move(inner));
    } else {
      std::string text = to_text(operand);
      others.emplace_back(std::move(text), std::move(operand));
    }
  }
  if (others.empty() || (!is_sum && integer == 0)) return SymExpr(integer);
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  SymExpr expression;
  expression.kind = SymExpr::Kind::kCall;
  expression.name = function;
  if (integer != (is_sum ? 0 : 1)) expression.operands.emplace_back(integer);
  for (auto& [text, operand] : others) expression.operands.push_back(std::move(operand));
  if (expression.operands.size() == 1) {
    SymExpr only = std::move(expression.operands[0]);
    return only;
  }
  return expression;
}

}  // namespace

SymExpr SymExpr::of_float(double value) {
  SymExpr expression;
  expression.kind = Kind::kFloat;
  expression.number = value;
  return expression;
}

SymExpr SymExpr::of_symbol(std::string symbol) {
  SymExpr expression;
  expression.kind = Kind::kSymbol;
  expression.name = std::move(symbol);
  return expression;
}

SymExpr SymExpr::of_call(std::string function, std::vector<SymExpr> operands) {
  if (function == "add" || function == "mul") return canonical_fold(function, std::move(operands));
  SymExpr expression;
  expression.kind = Kind::kCall;
  expression.name = std::move(function);
  expression.operands = std::move(operands);
  return expression;
}

std::string to_text(const SymExpr& expression) {
  switch (expression.kind) {
    case SymExpr::Kind::kInteger:
      return fmt::format("{}", expression.integer);
    case SymExpr::Kind::kFloat: {
      // Words would read as symbols: infinity is a number too large for a double.
      if (std::isinf(expression.number)) return expression.number > 0 ? "1e999" : "-1e999";
      if (std::isnan(expression.number)) return "0nan";
      std::string text = fmt::format("{}", expression.number);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    case SymExpr::Kind::kSymbol:
      return expression.name;
    case SymExpr::Kind::kCall:
      break;
  }
  std::string text = expression.name + "(";
  for (const SymExpr& operand : expression.operands) {
    if (text.back() != '(') text += ",";
    text += to_text(operand);
  }
  return text + ")";
}

Result<SymExpr> parse_sym_expr(std::string_view text) {
  size_t position = 0;
  TRIREME_TRY(SymExpr expression, parse_at(text, position, 0));
  if (position != text.size()) {
    return Error{
        fmt::format("'{}' is left over after the size", one_line(text.substr(position), 60))};
  }
  return expression;
}

bool is_sym_function(std::string_view name) { return find_function(name) != nullptr; }

Result<SymValue> evaluate(const SymExpr& expression, const SymbolValues& symbols) {
  switch (expression.kind) {
    case SymExpr::Kind::kInteger:
      return SymValue(expression.integer);
    case SymExpr::Kind::kFloat:
      return SymValue(expression.number);
    case SymExpr::Kind::kSymbol: {
      const auto found = symbols.find(expression.name);
      if (found == symbols.end()) {
        return Error{fmt::format("the size {} has no value", expression.name)};
      }
      return SymValue(found->second);
    }
    case SymExpr::Kind::kCall:
      break;
  }
  const SymFunction* function = find_function(expression.name);
  TRIREME_CHECK(function != nullptr, "a parsed size has a known function");
  Values values;
  for (const SymExpr& operand : expression.operands) {
    TRIREME_TRY(SymValue value, evaluate(operand, symbols));
    values.push_back(value);
  }
  return function->evaluate(values);
}

Result<int64_t> evaluate_integer(const SymExpr& expression, const SymbolValues& symbols) {
  if (expression.is_integer()) return expression.integer;
  TRIREME_TRY(SymValue value, evaluate(expression, symbols));
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  return Error{fmt::format("the size {} is not an integer", one_line(to_text(expression), 200))};
}

void collect_symbols(const SymExpr& expression, std::set<std::string>& symbols) {
  if (expression.is_symbol()) symbols.insert(expression.name);
  for (const SymExpr& operand : expression.operands) collect_symbols(operand, symbols);
}

}  // namespace trireme
