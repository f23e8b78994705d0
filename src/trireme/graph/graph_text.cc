// The text form of Graph, and its parser: exact inverses.

#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/graph/graph.h"
#include "trireme/graph/line_cursor.h"

namespace trireme {
namespace {

// --- writing -----------------------------------------------------------------------------------

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// The names of modules are the user's own: a key of a ModuleDict may hold anything.
std::string word(std::string_view text) {
  const bool is_plain =
      !text.empty() && text[0] != '"' && text.find_first_of(" \n") == std::string_view::npos;
  return is_plain ? std::string(text) : in_quotes(text);
}

template <typename Items, typename ToText>
std::string joined(const Items& items, ToText item_text) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) text += ", ";
    is_first = false;
    text += item_text(item);
  }
  return text;
}

struct ArgumentWriter {
  const Graph& graph;

  std::string name_of(ValueId id) const { return "%" + graph.values[id.value].name; }
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(ValueId id) const { return name_of(id); }
  std::string operator()(const std::vector<std::optional<ValueId>>& list) const {
    return "{" +
           joined(list,
                  [this](const std::optional<ValueId>& id) {
                    return id.has_value() ? name_of(*id) : std::string("none");
                  }) +
           "}";
  }
  std::string operator()(const SymExpr& expression) const { return to_text(expression); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& text) const { return in_quotes(text); }
  std::string operator()(const std::vector<SymExpr>& list) const {
    return "[" + joined(list, [](const SymExpr& e) { return to_text(e); }) + "]";
  }
  std::string operator()(const std::vector<bool>& list) const {
    return "bools[" + joined(list, [](bool b) { return std::string(b ? "true" : "false"); }) + "]";
  }
  std::string operator()(DType dtype) const {
    return fmt::format("dtype:{}", dtype_info(dtype).name);
  }
  std::string operator()(const Layout& layout) const { return "layout:" + layout.name; }
  std::string operator()(const MemoryFormat& format) const { return "format:" + format.name; }
  std::string operator()(const Device& device) const { return "device:" + device.name; }
};

constexpr std::string_view kInputKinds[] = {"parameter", "buffer", "constant", "input"};

std::string input_to_text(const Graph& graph, const GraphInput& input) {
  std::string line = fmt::format("{} %{}", kInputKinds[static_cast<int>(input.kind)],
                                 graph.values[input.value.value].name);
  for (const std::string& name : input.names) line += " " + in_quotes(name);
  line += " " + to_text(graph.values[input.value.value].type);
  if (input.requires_grad) line += " grad";
  if (!input.is_persistent) line += " transient";
  if (!input.offsets.empty()) line += " offsets " + in_quotes(input.offsets);
  return line;
}

std::string region_to_text(const Region& region, size_t index) {
  std::string line = fmt::format("region {} in {} ", index, region.parent.value);
  if (region.kind == Region::Kind::kGradMode) {
    return line + (region.is_enabled ? "enable_grad" : "no_grad");
  }
  return line + fmt::format("autocast {} {}", region.is_enabled ? "on" : "off",
                            dtype_info(region.autocast_dtype).name);
}

// --- reading -----------------------------------------------------------------------------------

class GraphParser {
 public:
  Status parse_line(std::string_view line) {
    LineCursor cursor(line);
    for (size_t kind = 0; kind < std::size(kInputKinds); ++kind) {
      if (cursor.take(std::string(kInputKinds[kind]) + " ")) {
        return parse_input(cursor, static_cast<GraphInput::Kind>(kind));
      }
    }
    if (cursor.take("region ")) return parse_region(cursor);
    if (cursor.take("hint ")) return parse_hint(cursor);
    if (cursor.take("bounds ")) return parse_bounds(cursor);
    if (cursor.take("batch ")) {
      graph_.batch = std::string(cursor.take_until(" "));
      return Status();
    }
    if (cursor.take("return ")) return parse_return(cursor);
    return parse_node(cursor);
  }
  Graph take_graph() { return std::move(graph_); }

 private:
  Result<TensorType> parse_type(LineCursor& cursor) {
    TensorType type;
    const std::string_view name = cursor.take_until("[ ");
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype.has_value()) return Error{fmt::format("'{}' is not a dtype", name)};
    type.dtype = *dtype;
    TRIREME_TRY(cursor.expect("["));
    TRIREME_TRY(type.sizes, parse_expressions(cursor, ";]"));
    type.strides = contiguous_strides(type.sizes);
    if (cursor.take(";")) {
      TRIREME_TRY(type.strides, parse_expressions(cursor, "]"));
    }
    TRIREME_TRY(cursor.expect("]"));
    return type;
  }

  static Result<std::vector<SymExpr>> parse_expressions(LineCursor& cursor,
                                                        std::string_view stops) {
    std::vector<SymExpr> list;
    for (const char stop : stops) {
      if (cursor.is_at(stop)) return list;
    }
    do {
      TRIREME_TRY(SymExpr size, parse_sym_expr(cursor.take_until(std::string(stops) + ", ")));
      list.push_back(std::move(size));
    } while (cursor.take(","));
    return list;
  }

  Result<ValueId> parse_reference(LineCursor& cursor) {
    TRIREME_TRY(cursor.expect("%"));
    const std::string name(cursor.take_until(" ,)}]="));
    const auto found = ids_.find(name);
    if (found == ids_.end()) return Error{fmt::format("%{} is not defined above", name)};
    return found->second;
  }

  Result<ValueId> parse_definition(LineCursor& cursor) {
    TRIREME_TRY(cursor.expect("%"));
    std::string name(cursor.take_until(" ,)}]="));
    const ValueId id(static_cast<int64_t>(graph_.values.size()));
    if (!ids_.emplace(name, id).second) {
      return Error{fmt::format("%{} is defined twice", name)};
    }
    graph_.values.push_back(Value{.name = std::move(name), .type = {}});
    return id;
  }

  Status parse_input(LineCursor& cursor, GraphInput::Kind kind) {
    GraphInput input{.kind = kind, .value = {}, .names = {}};
    TRIREME_TRY(input.value, parse_definition(cursor));
    while (cursor.is_at('"')) {
      TRIREME_TRY(std::string name, cursor.take_quoted());
      input.names.push_back(std::move(name));
    }
    TRIREME_TRY(graph_.values[input.value.value].type, parse_type(cursor));
    input.requires_grad = cursor.take("grad");
    input.is_persistent = !cursor.take("transient");
    if (cursor.take("offsets ")) {
      TRIREME_TRY(input.offsets, cursor.take_quoted());
    }
    graph_.inputs.push_back(std::move(input));
    return Status();
  }

  Status parse_region(LineCursor& cursor) {
    TRIREME_TRY(SymExpr index, parse_sym_expr(cursor.take_until(" ")));
    if (index != SymExpr(static_cast<int64_t>(graph_.regions.size()))) {
      return Error{fmt::format("region {} expected", graph_.regions.size())};
    }
    TRIREME_TRY(cursor.expect("in "));
    TRIREME_TRY(SymExpr parent, parse_sym_expr(cursor.take_until(" ")));
    Region region{.kind = Region::Kind::kGradMode, .parent = RegionId(parent.integer)};
    if (cursor.take("autocast ")) {
      region.kind = Region::Kind::kAutocast;
      region.is_enabled = cursor.take("on ");
      if (!region.is_enabled) TRIREME_TRY(cursor.expect("off "));
      const std::optional<DType> dtype = dtype_from_name(cursor.take_until(" "));
      if (!dtype.has_value()) return Error{"an autocast region lacks its dtype"};
      region.autocast_dtype = *dtype;
    } else {
      region.is_enabled = cursor.take("enable_grad");
      if (!region.is_enabled) TRIREME_TRY(cursor.expect("no_grad"));
    }
    graph_.regions.push_back(region);
    return Status();
  }

  Status parse_hint(LineCursor& cursor) {
    const std::string symbol(cursor.take_until(" ="));
    TRIREME_TRY(cursor.expect("="));
    TRIREME_TRY(SymExpr value, parse_sym_expr(cursor.take_until(" ")));
    graph_.symbol_hints[symbol] = value.integer;
    return Status();
  }

  Status parse_bounds(LineCursor& cursor) {
    const std::string symbol(cursor.take_until(" ="));
    TRIREME_TRY(cursor.expect("="));
    TRIREME_TRY(SymExpr least, parse_sym_expr(cursor.take_until(" .")));
    TRIREME_TRY(cursor.expect(".."));
    SizeBounds bounds{.least = least.integer};
    if (const std::string_view end = cursor.take_until(" "); !end.empty()) {
      TRIREME_TRY(SymExpr most, parse_sym_expr(end));
      bounds.most = most.integer;
    }
    graph_.size_bounds[symbol] = bounds;
    return Status();
  }

  Status parse_return(LineCursor& cursor) {
    TRIREME_TRY(graph_.loss, parse_reference(cursor));
    if (!cursor.take(",")) return Status();
    if (cursor.is_at('%')) {
      TRIREME_TRY(ValueId items, parse_reference(cursor));
      graph_.items = items;
    } else {
      TRIREME_TRY(SymExpr items, parse_sym_expr(cursor.take_until(" ")));
      graph_.items = std::move(items);
    }
    return Status();
  }

  Status parse_outputs(LineCursor& cursor, Node& node) {
    while (!cursor.take("=")) {
      if (!node.outputs.empty()) TRIREME_TRY(cursor.expect(","));
      NodeOutput output;
      if (cursor.take("$")) {
        output.symbol = std::string(cursor.take_until(" ,="));
      } else if (cursor.take("[")) {
        output.is_list = true;
        while (!cursor.take("]")) {
          if (!output.values.empty()) TRIREME_TRY(cursor.expect(","));
          TRIREME_TRY(ValueId id, parse_definition(cursor));
          output.values.push_back(id);
        }
      } else {
        TRIREME_TRY(ValueId id, parse_definition(cursor));
        output.values.push_back(id);
      }
      node.outputs.push_back(std::move(output));
    }
    return Status();
  }

  Result<Argument> parse_argument(LineCursor& cursor) {
    if (cursor.is_at('%')) {
      TRIREME_TRY(ValueId id, parse_reference(cursor));
      return Argument(id);
    }
    if (cursor.is_at('"')) {
      TRIREME_TRY(std::string text, cursor.take_quoted());
      return Argument(std::move(text));
    }
    if (cursor.take("{")) return parse_tensor_list(cursor);
    if (cursor.take("bools[")) {
      std::vector<bool> list;
      while (!cursor.take("]")) {
        if (!list.empty()) TRIREME_TRY(cursor.expect(","));
        list.push_back(cursor.take("true"));
        if (!list.back()) TRIREME_TRY(cursor.expect("false"));
      }
      return Argument(std::move(list));
    }
    if (cursor.take("[")) {
      TRIREME_TRY(std::vector<SymExpr> list, parse_expressions(cursor, "]"));
      TRIREME_TRY(cursor.expect("]"));
      return Argument(std::move(list));
    }
    if (cursor.take("dtype:")) {
      const std::string_view name = cursor.take_until(" ,)");
      const std::optional<DType> dtype = dtype_from_name(name);
      if (!dtype.has_value()) return Error{fmt::format("'{}' is not a dtype", name)};
      return Argument(*dtype);
    }
    if (cursor.take("layout:")) return Argument(Layout{std::string(cursor.take_until(" ,)"))});
    if (cursor.take("format:")) {
      return Argument(MemoryFormat{std::string(cursor.take_until(" ,)"))});
    }
    if (cursor.take("device:")) return Argument(Device{std::string(cursor.take_until(" ,)"))});
    const std::string_view word = cursor.take_until(" ,)");
    if (word == "none") return Argument(std::monostate());
    if (word == "true" || word == "false") return Argument(word == "true");
    TRIREME_TRY(SymExpr expression, parse_sym_expr(word));
    return Argument(std::move(expression));
  }

  Result<Argument> parse_tensor_list(LineCursor& cursor) {
    std::vector<std::optional<ValueId>> list;
    while (!cursor.take("}")) {
      if (!list.empty()) TRIREME_TRY(cursor.expect(","));
      if (cursor.take("none")) {
        list.emplace_back(std::nullopt);
      } else {
        TRIREME_TRY(ValueId id, parse_reference(cursor));
        list.emplace_back(id);
      }
    }
    return Argument(std::move(list));
  }

  Status parse_node(LineCursor& cursor) {
    Node node;
    // Outputs are defined before the arguments are read, so a node that reads itself would pass
    // here; verify_graph refuses it.
    TRIREME_TRY(parse_outputs(cursor, node));
    node.op = std::string(cursor.take_until("("));
    TRIREME_TRY(cursor.expect("("));
    while (!cursor.take(")")) {
      if (!node.arguments.empty()) TRIREME_TRY(cursor.expect(","));
      NamedArgument argument;
      argument.name = std::string(cursor.take_until("= "));
      TRIREME_TRY(cursor.expect("="));
      TRIREME_TRY(argument.value, parse_argument(cursor));
      node.arguments.push_back(std::move(argument));
    }
    bool is_first = true;
    for (ValueId id : results(node)) {
      TRIREME_TRY(cursor.expect(is_first ? "->" : ","));
      is_first = false;
      TRIREME_TRY(graph_.values[id.value].type, parse_type(cursor));
    }
    if (cursor.take("@ ")) {
      TRIREME_TRY(node.module, cursor.take_word());
      TRIREME_TRY(node.module_class, cursor.take_word());
    }
    if (cursor.take("region ")) {
      TRIREME_TRY(SymExpr region, parse_sym_expr(cursor.take_until(" ")));
      node.region = RegionId(region.integer);
    }
    if (!cursor.is_done()) {
      return Error{fmt::format("'{}' is left over", one_line(cursor.rest(), 24))};
    }
    graph_.nodes.push_back(std::move(node));
    return Status();
  }

  Graph graph_;
  std::map<std::string, ValueId> ids_;
};

}  // namespace

std::string to_text(const TensorType& type) {
  const auto list = [](const std::vector<SymExpr>& sizes) {
    std::string text;
    for (const SymExpr& size : sizes) text += (text.empty() ? "" : ",") + to_text(size);
    return text;
  };
  std::string text = fmt::format("{}[{}", dtype_info(type.dtype).name, list(type.sizes));
  if (type.strides != contiguous_strides(type.sizes)) text += ";" + list(type.strides);
  return text + "]";
}

std::string node_to_text(const Graph& graph, const Node& node) {
  const ArgumentWriter writer{graph};
  std::string line = joined(node.outputs, [&](const NodeOutput& output) {
    if (!output.symbol.empty()) return "$" + output.symbol;
    const std::string names = joined(output.values, [&](ValueId id) { return writer.name_of(id); });
    return output.is_list ? "[" + names + "]" : names;
  });
  line += line.empty() ? "= " : " = ";
  line += node.op + "(";
  line += joined(node.arguments, [&](const NamedArgument& argument) {
    return argument.name + "=" + std::visit(writer, argument.value);
  });
  line += ")";
  const std::vector<ValueId> values = results(node);
  if (!values.empty()) {
    line += " -> ";
    line += joined(values, [&](ValueId id) { return to_text(graph.values[id.value].type); });
  }
  if (!node.module.empty()) line += " @ " + word(node.module) + " " + word(node.module_class);
  if (node.region.value != 0) line += fmt::format(" region {}", node.region.value);
  return line;
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (const auto& [symbol, value] : graph.symbol_hints) {
    text += fmt::format("hint {} = {}\n", symbol, value);
  }
  for (const auto& [symbol, bounds] : graph.size_bounds) {
    text += fmt::format("bounds {} = {}..{}\n", symbol, bounds.least,
                        bounds.most == SizeBounds().most ? "" : fmt::format("{}", bounds.most));
  }
  if (!graph.batch.empty()) text += "batch " + graph.batch + "\n";
  for (const GraphInput& input : graph.inputs) text += input_to_text(graph, input) + "\n";
  for (size_t i = 1; i < graph.regions.size(); ++i) {
    text += region_to_text(graph.regions[i], i) + "\n";
  }
  for (const Node& node : graph.nodes) text += node_to_text(graph, node) + "\n";
  text += "return %" + graph.values[graph.loss.value].name;
  if (const auto* id = std::get_if<ValueId>(&graph.items)) {
    text += ", %" + graph.values[id->value].name;
  }
  if (const auto* expression = std::get_if<SymExpr>(&graph.items)) {
    text += ", " + to_text(*expression);
  }
  return text + "\n";
}

Result<Graph> parse_graph(std::string_view text) {
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  GraphParser parser;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(' ') == std::string_view::npos) continue;
    if (Status status = parser.parse_line(line); !status.ok()) {
      return Error{
          one_line(while_doing(fmt::format("line {}", line_number), status.error()).message)};
    }
  }
  Graph graph = parser.take_graph();
  if (const Status status = verify_graph(graph); !status.ok()) {
    return Error{one_line(status.error().message)};
  }
  return graph;
}

}  // namespace trireme
