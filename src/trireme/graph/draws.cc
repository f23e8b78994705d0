#include "trireme/graph/draws.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

using Place = DrawRule::Place;

constexpr std::string_view kUseAnother =
    "draw with rand, randn, exponential_, bernoulli or multinomial instead";
constexpr std::string_view kUsePadding =
    "pad the sequences instead of packing them, or set its dropout to 0";

constexpr std::array kRules = {
    DrawRule{.name = "dropout", .train_flag = "train", .rate = "p"},
    DrawRule{.name = "alpha_dropout", .train_flag = "train", .rate = "p"},
    DrawRule{
        .name = "feature_dropout", .place = Place::kChannels, .train_flag = "train", .rate = "p"},
    DrawRule{.name = "feature_alpha_dropout",
             .place = Place::kChannels,
             .train_flag = "train",
             .rate = "p"},
    DrawRule{.name = "scaled_dot_product_attention", .place = Place::kQuery, .rate = "dropout_p"},
    DrawRule{.name = "lstm", .train_flag = "train", .rate = "dropout"},
    DrawRule{.name = "gru", .train_flag = "train", .rate = "dropout"},
    DrawRule{.name = "rnn_tanh", .train_flag = "train", .rate = "dropout"},
    DrawRule{.name = "rnn_relu", .train_flag = "train", .rate = "dropout"},
    DrawRule{.name = "rrelu", .train_flag = "training", .train_default = false},
    DrawRule{.name = "rrelu_with_noise", .train_flag = "training", .train_default = false},
    DrawRule{.name = "rand"},
    DrawRule{.name = "rand_like"},
    DrawRule{.name = "randn"},
    DrawRule{.name = "randn_like"},
    DrawRule{.name = "randint"},
    DrawRule{.name = "randint_like"},
    DrawRule{.name = "normal"},
    DrawRule{.name = "uniform"},
    DrawRule{.name = "exponential"},
    DrawRule{.name = "log_normal"},
    DrawRule{.name = "cauchy"},
    DrawRule{.name = "geometric"},
    DrawRule{.name = "random"},
    DrawRule{.name = "bernoulli"},
    DrawRule{.name = "multinomial"},
    DrawRule{.name = "randperm", .place = Place::kNowhere},
    DrawRule{
        .name = "native_dropout", .train_flag = "train", .rate = "p", .instead = "use dropout"},
    DrawRule{.name = "poisson", .instead = kUseAnother},
    DrawRule{.name = "binomial", .instead = kUseAnother},
    DrawRule{.name = "_standard_gamma", .instead = kUseAnother},
    DrawRule{.name = "_sample_dirichlet", .instead = kUseAnother},
};

bool is_on(const Node& node, std::string_view flag, bool otherwise) {
  const Argument* argument = find_argument(node, flag);
  const bool* value = argument == nullptr ? nullptr : std::get_if<bool>(argument);
  return value == nullptr ? otherwise : *value;
}

// A rate that is no constant counts as one that drops.
bool is_positive(const Node& node, std::string_view rate) {
  const Argument* argument = find_argument(node, rate);
  const auto* expression = argument == nullptr ? nullptr : std::get_if<SymExpr>(argument);
  if (expression == nullptr) return base_name(node.op).find("dropout") != std::string_view::npos;
  const Result<SymValue> value = evaluate(*expression, {});
  if (!value.ok()) return true;
  return std::visit([](auto number) { return number > 0; }, value.value());
}

// --- where samples lie
// -----------------------------------------------------------------------------

std::vector<SymExpr> factors_of(const SymExpr& size) {
  if (size.kind == SymExpr::Kind::kCall && size.name == "mul") return size.operands;
  return {size};
}

bool has_symbol(const SymExpr& size, const std::string& symbol) {
  std::set<std::string> symbols;
  collect_symbols(size, symbols);
  return symbols.contains(symbol);
}

bool is_multiple(const SymExpr& size, const std::string& symbol) {
  int count = 0;
  for (const SymExpr& factor : factors_of(size)) {
    if (!has_symbol(factor, symbol)) continue;
    if (!factor.is_symbol()) return false;
    ++count;
  }
  return count == 1;
}

// The dim whose size is the batch or a multiple of it, if it is the only one that depends on the
// batch.
std::optional<int32_t> batch_dim(const TensorType& type, const std::string& symbol) {
  std::optional<int32_t> dim;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (!has_symbol(type.sizes[d], symbol)) continue;
    if (dim.has_value() || !is_multiple(type.sizes[d], symbol)) return std::nullopt;
    dim = static_cast<int32_t>(d);
  }
  return dim;
}

// A product of sizes: an integer and other factors.
struct Product {
  int64_t integer = 1;
  std::multimap<std::string, SymExpr> others;  // by text

  void multiply(const SymExpr& size) {
    for (const SymExpr& factor : factors_of(size)) {
      if (factor.is_integer()) {
        integer *= factor.integer;
      } else {
        others.emplace(to_text(factor), factor);
      }
    }
  }
  // False when `other` does not divide it.
  bool divide(const Product& other) {
    if (other.integer == 0 || integer % other.integer != 0) return false;
    integer /= other.integer;
    for (const auto& [text, factor] : other.others) {
      const auto found = others.find(text);
      if (found == others.end()) return false;
      others.erase(found);
    }
    return true;
  }
  [[nodiscard]] SymExpr expression() const {
    std::vector<SymExpr> operands = {SymExpr(integer)};
    for (const auto& [text, factor] : others) operands.push_back(factor);
    return operands.size() == 1 ? operands[0] : SymExpr::of_call("mul", std::move(operands));
  }
};

Product product_before(const TensorType& type, int32_t dim) {
  Product product;
  for (int32_t d = 0; d < dim; ++d) product.multiply(type.sizes[d]);
  return product;
}

class SampleSearch {
 public:
  SampleSearch(const Graph& graph, std::string symbol)
      : graph_(graph), symbol_(std::move(symbol)), places_(graph.values.size()) {
    for (const GraphInput& input : graph.inputs) {
      if (input.kind != GraphInput::Kind::kUser) continue;
      const std::optional<int32_t> dim = batch_dim(type(input.value), symbol_);
      if (dim.has_value()) places_[input.value.value] = SamplePlace{.dim = *dim};
    }
    for (const Node& node : graph.nodes) {
      for (const ValueId id : results(node)) places_[id.value] = find(node, id);
    }
  }

  [[nodiscard]] std::vector<std::optional<SamplePlace>> take() { return std::move(places_); }

 private:
  [[nodiscard]] const TensorType& type(ValueId id) const { return graph_.values[id.value].type; }

  [[nodiscard]] std::optional<SamplePlace> find(const Node& node, ValueId result) const {
    const std::optional<int32_t> dim = batch_dim(type(result), symbol_);
    if (!dim.has_value()) return std::nullopt;
    if (is_reshape(node)) return through_reshape(node, result, *dim);
    if (type(result).sizes[*dim].is_symbol()) return SamplePlace{.dim = *dim};
    if (base_name(node.op) == "cat") return through_cat(node, *dim);
    return through_rows(node, result, *dim);
  }

  // The same elements in the same order under other sizes.
  static bool is_reshape(const Node& node) {
    constexpr std::array<std::string_view, 8> kNames = {"view",      "reshape",   "_unsafe_view",
                                                        "flatten",   "unflatten", "squeeze",
                                                        "unsqueeze", "view_as"};
    return std::find(kNames.begin(), kNames.end(), base_name(node.op)) != kNames.end();
  }

  [[nodiscard]] std::optional<SamplePlace> through_reshape(const Node& node, ValueId result,
                                                           int32_t dim) const {
    const std::vector<ValueId> read = operands(node);
    if (read.empty() || !places_[read[0].value].has_value()) return std::nullopt;
    const SamplePlace& given = *places_[read[0].value];
    Product blocks = product_before(type(read[0]), given.dim);
    blocks.multiply(given.blocks);
    if (!blocks.divide(product_before(type(result), dim))) return std::nullopt;
    return SamplePlace{.dim = dim, .blocks = blocks.expression()};
  }

  [[nodiscard]] std::optional<SamplePlace> through_cat(const Node& node, int32_t dim) const {
    const std::vector<ValueId> read = operands(node);
    for (const ValueId id : read) {
      const std::optional<SamplePlace>& place = places_[id.value];
      if (!place.has_value() || place->dim != dim || !type(id).sizes[dim].is_symbol()) {
        return std::nullopt;
      }
    }
    return SamplePlace{.dim = dim, .blocks = SymExpr(static_cast<int64_t>(read.size()))};
  }

  // Rows of a merged dim stay what they are: the operand with as many of them says what they mean.
  [[nodiscard]] std::optional<SamplePlace> through_rows(const Node& node, ValueId result,
                                                        int32_t dim) const {
    const OpRule* rule = find_op_rule(node.op);
    const bool keeps_rows = rule != nullptr && rule->kind != OpKind::kIndexing &&
                            rule->kind != OpKind::kReduction && rule->kind != OpKind::kOther &&
                            base_name(node.op) != "repeat_interleave" &&
                            base_name(node.op) != "repeat";
    if (!keeps_rows && base_name(node.op) != "embedding") return std::nullopt;
    for (const ValueId id : operands(node)) {
      const std::optional<SamplePlace>& place = places_[id.value];
      if (place.has_value() && type(id).sizes[place->dim] == type(result).sizes[dim]) {
        return SamplePlace{.dim = dim, .blocks = place->blocks};
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const std::string symbol_;
  std::vector<std::optional<SamplePlace>> places_;
};

// --- keys
// ------------------------------------------------------------------------------------------

// What a value is made of, at most.
enum class Origin : uint8_t { kNothing, kWeights, kData };

std::optional<SamplePlace> draw_place(const Graph& graph, const Node& node, const DrawRule& rule,
                                      const std::vector<std::optional<SamplePlace>>& places) {
  if (rule.place == Place::kNowhere) return std::nullopt;
  std::optional<ValueId> id;
  if (rule.place == Place::kQuery) {
    const Argument* query = find_argument(node, "query");
    if (query != nullptr && std::holds_alternative<ValueId>(*query)) id = std::get<ValueId>(*query);
  } else if (const std::vector<ValueId> made = results(node); !made.empty()) {
    id = made[0];
  }
  if (!id.has_value() || !places[id->value].has_value()) return std::nullopt;
  // Attention drops its weights, which have all dims of the query but the last.
  const auto rank = static_cast<int32_t>(graph.values[id->value].type.sizes.size());
  if (rule.place == Place::kQuery && places[id->value]->dim == rank - 1) return std::nullopt;
  if (rule.place == Place::kChannels && places[id->value]->dim > 1) return std::nullopt;
  return places[id->value];
}

}  // namespace

std::string_view to_text(DrawKey key) {
  constexpr std::array<std::string_view, 3> kNames = {"sample", "step", "micro-batch"};
  return kNames[static_cast<size_t>(key)];
}

std::span<const DrawRule> draw_rules() { return kRules; }

const DrawRule* find_draw_rule(std::string_view op) {
  const std::string_view name = without_in_place_mark(base_name(op));
  for (const DrawRule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

bool is_random(const Node& node) {
  const DrawRule* rule = find_draw_rule(node.op);
  if (rule == nullptr) return false;
  // The dropout of recurrent layers is between two of them.
  const Argument* layers = find_argument(node, "num_layers");
  if (layers != nullptr && *layers == Argument(SymExpr(1))) return false;
  if (!rule->train_flag.empty() && !is_on(node, rule->train_flag, rule->train_default))
    return false;
  return rule->rate.empty() || is_positive(node, rule->rate);
}

bool is_random_in_evaluation(const Node& node) {
  const DrawRule* rule = find_draw_rule(node.op);
  return rule != nullptr && rule->train_flag.empty() && rule->rate.empty();
}

std::string why_no_draw(const Node& node) {
  const DrawRule* rule = find_draw_rule(node.op);
  std::string_view instead = rule == nullptr ? kUseAnother : rule->instead;
  const bool is_packed = node.op.ends_with(".data") && rule != nullptr && rule->rate == "dropout";
  if (is_packed) instead = kUsePadding;
  if (instead.empty()) return "";
  return fmt::format("{} draws from torch's own generator, whose numbers depend on the layout; {}",
                     describe_node(node), instead);
}

std::vector<std::optional<Draw>> analyze_draws(const Graph& graph) {
  const std::optional<std::string> symbol = batch_symbol(graph);
  std::vector<std::optional<SamplePlace>> places(graph.values.size());
  if (symbol.has_value()) places = SampleSearch(graph, *symbol).take();
  std::vector<Origin> origins(graph.values.size(), Origin::kNothing);
  for (const GraphInput& input : graph.inputs) {
    origins[input.value.value] =
        input.kind == GraphInput::Kind::kUser ? Origin::kData : Origin::kWeights;
  }
  std::vector<std::optional<Draw>> draws;
  for (const Node& node : graph.nodes) {
    Origin origin = symbols_read(node).empty() ? Origin::kNothing : Origin::kData;
    for (const ValueId id : operands(node)) origin = std::max(origin, origins[id.value]);
    std::optional<Draw>& draw = draws.emplace_back();
    if (is_random(node)) {
      const std::optional<SamplePlace> place =
          draw_place(graph, node, *find_draw_rule(node.op), places);
      if (place.has_value()) {
        draw = Draw{.key = DrawKey::kSample, .place = *place};
      } else if (origin == Origin::kWeights) {
        draw = Draw{.key = DrawKey::kStep, .place = {}};
      } else {
        draw = Draw{.key = DrawKey::kMicroBatch, .place = {}};
        origin = Origin::kData;
      }
    }
    for (const ValueId id : results(node)) origins[id.value] = origin;
  }
  return draws;
}

}  // namespace trireme
