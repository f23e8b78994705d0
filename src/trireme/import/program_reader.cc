#include "trireme/import/program_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "trireme/graph/op_rules.h"
#include "trireme/import/schema_json.h"
#include "trireme/import/sympy_reader.h"

namespace trireme {
namespace {

using schema::array_at;
using schema::as_array;
using schema::dtype_of;
using schema::float_of;
using schema::identifier_of;
using schema::integer_of;
using schema::Json;
using schema::name_of;
using schema::object_at;
using schema::Refusal;
using schema::refuse;
using schema::union_kind;

constexpr int kMaxGraphDepth = 32;

std::string in_module(const Node& node) {
  return node.module.empty() ? "" : fmt::format(" of module '{}'", node.module);
}

class ProgramReader {
 public:
  explicit ProgramReader(const Json& program) : program_(program) {}

  Program read() {
    const int64_t major = integer_of(program_.at("schema_version").at("major"));
    if (major != 8) {
      refuse("its schema version is {}, and this reader knows 8; export with torch 2.13", major);
    }
    const Json& verifiers = array_at(program_, "verifiers");
    if (!verifiers.empty() &&
        std::find(verifiers.begin(), verifiers.end(), "TRAINING") == verifiers.end()) {
      refuse(
          "it is not training IR; save what torch.export.export returns, without "
          "run_decompositions");
    }
    const Json& module = program_.at("graph_module");
    read_inputs(module);
    for (const Json& node : array_at(module.at("graph"), "nodes")) {
      read_node(node, root_scope_, RegionId(0), 0);
    }
    read_outputs(module);
    read_size_bounds();
    Program program{.graph = std::move(graph_), .torch_version = {}};
    if (program_.contains("torch_version")) program.torch_version = program_.at("torch_version");
    return program;
  }

 private:
  // What names mean inside one (sub-)graph.
  struct Scope {
    std::map<std::string, ValueId, std::less<>> tensors;
    const Json* json = nullptr;
    // Of the node being read, for errors.
    std::string node;
  };

  // --- values ----------------------------------------------------------------------------------

  SymExpr read_sym(const Json& json) {
    const std::string& kind = union_kind(json);
    if (kind == "as_int") return SymExpr(integer_of(*json.begin()));
    if (kind == "as_bool") return SymExpr(int64_t{json.begin()->get<bool>()});
    if (kind == "as_float") return SymExpr::of_float(float_of(*json.begin()));
    if (kind != "as_expr") refuse("a size is neither a number nor an expression but {}", kind);
    const Json& body = *json.begin();
    SymExpr expression =
        schema::unwrap_or_refuse(parse_sympy(body.at("expr_str").get<std::string>()));
    if (expression.is_symbol() && body.contains("hint") && body.at("hint").is_object() &&
        body.at("hint").contains("as_int")) {
      graph_.symbol_hints[expression.name] = integer_of(body.at("hint").at("as_int"));
    }
    return expression;
  }

  TensorType read_type(const Json& meta) {
    if (integer_of(meta.at("layout")) != 7) {
      refuse("a tensor is not strided; sparse and other layouts are not supported");
    }
    TensorType type;
    type.dtype = dtype_of(meta.at("dtype"));
    for (const Json& size : array_at(meta, "sizes")) type.sizes.push_back(read_sym(size));
    for (const Json& stride : array_at(meta, "strides")) type.strides.push_back(read_sym(stride));
    if (type.sizes.size() != type.strides.size()) {
      refuse("a tensor has {} sizes but {} strides", type.sizes.size(), type.strides.size());
    }
    verify_fixed_sizes(type);
    return type;
  }

  // Negative sizes, and sizes that no memory holds whatever the symbolic ones are.
  static void verify_fixed_sizes(const TensorType& type) {
    std::vector<int64_t> fixed;
    for (const SymExpr& size : type.sizes) {
      if (size.is_integer()) fixed.push_back(size.integer);
    }
    const std::optional<uint64_t> bytes = tensor_bytes(fixed, type.dtype);
    const bool is_negative_stride = std::any_of(
        type.strides.begin(), type.strides.end(),
        [](const SymExpr& stride) { return stride.is_integer() && stride.integer < 0; });
    if (!bytes.has_value() || *bytes > uint64_t{std::numeric_limits<int64_t>::max()} ||
        is_negative_stride) {
      refuse("a tensor has impossible sizes or strides");
    }
  }

  ValueId define(Scope& scope, const std::string& name) {
    const Json& metas = object_at(*scope.json, "tensor_values");
    if (!metas.contains(name)) refuse("the tensor {} has no type", name);
    if (scope.tensors.contains(name)) refuse("the tensor {} is made twice", name);
    std::string unique = name;
    // Sub-graphs use names again.
    while (!names_.insert(unique).second) unique = fmt::format("{}.{}", name, ++num_copies_[name]);
    const ValueId id(static_cast<int64_t>(graph_.values.size()));
    graph_.values.push_back(Value{.name = std::move(unique), .type = read_type(metas.at(name))});
    scope.tensors[name] = id;
    return id;
  }

  ValueId find_tensor(const Scope& scope, const std::string& name) {
    const auto found = scope.tensors.find(name);
    if (found == scope.tensors.end()) refuse("the tensor {} is used before it is made", name);
    return found->second;
  }

  // {"as_name": n} or {"as_int"/"as_float"/"as_bool": v}, of any of the three symbolic kinds.
  SymExpr read_sym_argument(const Scope& scope, const Json& json) {
    if (union_kind(json) != "as_name") return read_sym(json);
    return read_named_sym(scope, json.begin()->get<std::string>());
  }

  SymExpr read_named_sym(const Scope& scope, const std::string& name) {
    for (const char* table : {"sym_int_values", "sym_float_values", "sym_bool_values"}) {
      if (scope.json->contains(table) && scope.json->at(table).contains(name)) {
        return read_sym(scope.json->at(table).at(name));
      }
    }
    refuse("the number {} is not defined", name);
  }

  // --- arguments -------------------------------------------------------------------------------

  Argument read_argument(const Scope& scope, const Json& json) {
    const std::string& kind = union_kind(json);
    const Json& body = *json.begin();
    if (kind == "as_none") return std::monostate();
    if (kind == "as_tensor") return find_tensor(scope, body.at("name"));
    if (kind == "as_optional_tensor") return read_optional(scope, body);
    if (kind == "as_tensors" || kind == "as_optional_tensors") {
      std::vector<std::optional<ValueId>> list;
      for (const Json& item : as_array(body)) {
        if (item.contains("name")) {
          list.emplace_back(find_tensor(scope, item.at("name")));
        } else {
          const Argument one = read_optional(scope, item);
          list.push_back(std::holds_alternative<ValueId>(one)
                             ? std::optional<ValueId>(std::get<ValueId>(one))
                             : std::nullopt);
        }
      }
      return list;
    }
    if (kind == "as_int") return SymExpr(integer_of(body));
    if (kind == "as_float") return SymExpr::of_float(float_of(body));
    if (kind == "as_bool") return body.get<bool>();
    if (kind == "as_string") return body.get<std::string>();
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
      return read_sym_argument(scope, body);
    }
    if (kind == "as_ints" || kind == "as_floats" || kind == "as_sym_ints" ||
        kind == "as_sym_floats") {
      std::vector<SymExpr> list;
      for (const Json& item : as_array(body)) {
        if (kind == "as_ints") {
          list.emplace_back(integer_of(item));
        } else if (kind == "as_floats") {
          list.push_back(SymExpr::of_float(float_of(item)));
        } else {
          list.push_back(read_sym_argument(scope, item));
        }
      }
      return list;
    }
    if (kind == "as_bools") return body.get<std::vector<bool>>();
    if (kind == "as_scalar_type") return dtype_of(body);
    if (kind == "as_layout") {
      if (integer_of(body) != 7) refuse("only the strided layout is supported");
      return Layout{"strided"};
    }
    if (kind == "as_memory_format") {
      constexpr std::array kFormats = {"", "contiguous", "channels_last", "channels_last_3d",
                                       "preserve"};
      const int64_t code = integer_of(body);
      if (code < 1 || code >= static_cast<int64_t>(kFormats.size())) {
        refuse("memory format {} is not known", code);
      }
      return MemoryFormat{kFormats[static_cast<size_t>(code)]};
    }
    if (kind == "as_device") return Device{identifier_of(body.at("type"))};
    refuse("an argument of kind {} is not supported", kind);
  }

  Argument read_optional(const Scope& scope, const Json& json) {
    if (union_kind(json) == "as_none") return std::monostate();
    return find_tensor(scope, json.begin()->at("name"));
  }

  // --- graphs ----------------------------------------------------------------------------------

  static void read_module(const Json& json, Node& node) {
    if (!json.contains("metadata") || !json.at("metadata").contains("nn_module_stack")) return;
    const std::string stack = name_of(json.at("metadata").at("nn_module_stack"));
    const std::string last = stack.substr(stack.rfind(';') + 1);
    const size_t first_comma = last.find(',');
    const size_t second_comma = last.find(',', first_comma + 1);
    if (second_comma == std::string::npos || last.starts_with("_empty_nn_module_stack")) return;
    node.module = last.substr(first_comma + 1, second_comma - first_comma - 1);
    const std::string class_name = last.substr(second_comma + 1);
    node.module_class = class_name.substr(class_name.rfind('.') + 1);
  }

  void read_node(const Json& json, Scope& scope, RegionId region, int depth) {
    const std::string target = identifier_of(json.at("target"));
    Node node;
    node.region = region;
    const auto name = json.contains("name") && json.at("name").is_string()
                          ? json.at("name").get<std::string>()
                          : std::string();
    try {
      read_module(json, node);
      if (target.starts_with("torch.ops.higher_order.")) {
        read_higher_order(json, target.substr(23), scope, node, depth);
      } else {
        read_call(json, target, scope, node);
      }
    } catch (const Refusal& refusal) {
      if (refusal.message.starts_with("node ")) throw;
      throw Refusal{
          fmt::format("node {} ({}){}: {}", name, target, in_module(node), refusal.message)};
    } catch (const Json::exception& exception) {
      throw Refusal{fmt::format("node {} ({}){} is malformed: {}", name, target, in_module(node),
                                schema::what_is_wrong(exception))};
    }
  }

  void read_call(const Json& json, const std::string& target, Scope& scope, Node& node) {
    constexpr std::string_view kPrefix = "torch.ops.";
    const bool is_operator = target.starts_with(kPrefix);
    node.op = is_operator ? target.substr(kPrefix.size()) : target;
    // Guards may hold expressions that nothing else needs.
    if (base_name(node.op).starts_with("_assert_")) return;
    read_node_outputs(json, scope, node);
    if (node.outputs.empty() && !array_at(json, "outputs").empty())
      return;  // numbers, known as sizes
    if (!is_operator) refuse("a function of Python is called; replace it in the model");
    for (const Json& argument : array_at(json, "inputs")) {
      node.arguments.push_back(NamedArgument{.name = identifier_of(argument.at("name")),
                                             .value = read_argument(scope, argument.at("arg"))});
    }
    graph_.nodes.push_back(std::move(node));
  }

  // Numbers that follow from the sizes of the inputs need no node: every use reads the expression.
  void read_node_outputs(const Json& json, Scope& scope, Node& node) {
    for (const Json& output : array_at(json, "outputs")) {
      const std::string& kind = union_kind(output);
      const Json& body = *output.begin();
      NodeOutput result;
      if (kind == "as_tensor") {
        result.values.push_back(define(scope, identifier_of(body.at("name"))));
      } else if (kind == "as_tensors") {
        result.is_list = true;
        for (const Json& item : as_array(body)) {
          result.values.push_back(define(scope, identifier_of(item.at("name"))));
        }
      } else if (kind == "as_sym_int" || kind == "as_sym_float") {
        const SymExpr expression = read_sym_argument(scope, body);
        const bool is_new = expression.is_symbol() && bound_symbols_.insert(expression.name).second;
        if (!is_new) continue;
        if (kind == "as_sym_float") {
          refuse(
              "the data decides a floating-point number (.item()), which is not supported; keep "
              "it a tensor in the model");
        }
        result.symbol = expression.name;
      } else if (kind == "as_sym_bool") {
        continue;  // comparisons of sizes: most serve assertions; a use reads the expression
      } else if (kind == "as_none" || kind == "as_int" || kind == "as_bool" || kind == "as_float") {
        continue;
      } else {
        refuse("a result of kind {} is not supported", kind);
      }
      node.outputs.push_back(std::move(result));
    }
  }

  void read_higher_order(const Json& json, const std::string& name, Scope& scope, const Node& node,
                         int depth) {
    if (depth == kMaxGraphDepth) refuse("sub-graphs are nested deeper than {}", kMaxGraphDepth);
    const Json& inputs = array_at(json, "inputs");
    Region region{.kind = Region::Kind::kGradMode, .parent = node.region};
    size_t graph_index = 1;
    if (name == "wrap_with_set_grad_enabled") {
      region.is_enabled = inputs.at(0).at("arg").at("as_bool").get<bool>();
    } else if (name == "wrap_with_autocast") {
      region.kind = Region::Kind::kAutocast;
      const Json& dtype = inputs.at(1).at("arg");
      if (dtype.contains("as_scalar_type")) {
        region.autocast_dtype = dtype_of(dtype.at("as_scalar_type"));
      }
      region.is_enabled = inputs.at(2).at("arg").at("as_bool").get<bool>();
      graph_index = 4;
    } else {
      refuse(
          "the higher-order operator {} is not supported; replace data-dependent control flow "
          "and re-entrant checkpointing in the model",
          name);
    }
    const Json& graph = inputs.at(graph_index).at("arg").at("as_graph").at("graph");
    const RegionId region_id(static_cast<int64_t>(graph_.regions.size()));
    graph_.regions.push_back(region);
    Scope inner;
    inner.json = &graph;
    const Json& formals = array_at(graph, "inputs");
    if (formals.size() != inputs.size() - graph_index - 1) {
      refuse("its sub-graph takes {} inputs but is given {}", formals.size(),
             inputs.size() - graph_index - 1);
    }
    for (size_t i = 0; i < formals.size(); ++i) {
      if (union_kind(formals[i]) != "as_tensor") continue;  // numbers are known by their names
      inner.tensors[formals[i].begin()->at("name")] =
          find_tensor(scope, inputs[graph_index + 1 + i].at("arg").at("as_tensor").at("name"));
    }
    for (const Json& child : array_at(graph, "nodes"))
      read_node(child, inner, region_id, depth + 1);
    bind_sub_graph_outputs(json, graph, scope, inner);
  }

  void bind_sub_graph_outputs(const Json& json, const Json& graph, Scope& scope,
                              const Scope& inner) {
    std::vector<std::string> outer;
    for (const Json& output : array_at(json, "outputs")) {
      if (union_kind(output) == "as_tensor") outer.push_back(output.begin()->at("name"));
      if (union_kind(output) != "as_tensors") continue;
      for (const Json& item : as_array(*output.begin())) outer.push_back(item.at("name"));
    }
    size_t index = 0;
    for (const Json& output : array_at(graph, "outputs")) {
      if (union_kind(output) != "as_tensor") continue;
      if (index >= outer.size()) refuse("its sub-graph returns more than is used");
      const ValueId value = find_tensor(inner, output.begin()->at("name"));
      if (!scope.tensors.emplace(outer[index], value).second) {
        refuse("the tensor {} is made twice", outer[index]);
      }
      ++index;
    }
    if (index != outer.size()) refuse("its sub-graph returns less than is used");
  }

  // --- signature -------------------------------------------------------------------------------

  void read_inputs(const Json& module) {
    root_scope_.json = &module.at("graph");
    for (const Json& spec : array_at(module.at("signature"), "input_specs")) {
      const std::string& kind = union_kind(spec);
      const Json& body = *spec.begin();
      GraphInput input;
      std::string placeholder;
      if (kind == "constant_input") continue;
      if (kind == "parameter") {
        input.kind = GraphInput::Kind::kParameter;
        input.names = {name_of(body.at("parameter_name"))};
        placeholder = identifier_of(body.at("arg").at("name"));
        input.requires_grad =
            root_scope_.json->at("tensor_values").at(placeholder).at("requires_grad").get<bool>();
      } else if (kind == "buffer") {
        input.kind = GraphInput::Kind::kBuffer;
        input.names = {name_of(body.at("buffer_name"))};
        input.is_persistent = body.at("persistent").get<bool>();
        placeholder = identifier_of(body.at("arg").at("name"));
      } else if (kind == "tensor_constant") {
        input.kind = GraphInput::Kind::kConstant;
        input.names = {name_of(body.at("tensor_constant_name"))};
        placeholder = identifier_of(body.at("arg").at("name"));
      } else if (kind == "user_input") {
        if (union_kind(body.at("arg")) != "as_tensor") continue;  // a number or None: baked in
        placeholder = identifier_of(body.at("arg").begin()->at("name"));
        input.names = {placeholder};
      } else {
        refuse("an input of kind {} is not supported; pass tensors only", kind);
      }
      try {
        input.value = define(root_scope_, placeholder);
      } catch (const Refusal& refusal) {
        throw Refusal{fmt::format("input {}: {}", input.names[0], refusal.message)};
      }
      for (const SymExpr& size : graph_.values[input.value.value].type.sizes) {
        if (size.is_symbol()) bound_symbols_.insert(size.name);
      }
      graph_.inputs.push_back(std::move(input));
    }
  }

  // torch.export never traces the sizes 0 and 1 of a dim that may have others, and so writes that
  // the least is 2 where one sample runs as well.
  void read_size_bounds() {
    constexpr int64_t kLeastThatCounts = 3;
    if (!program_.contains("range_constraints")) return;
    for (const auto& [symbol, range] : object_at(program_, "range_constraints").items()) {
      SizeBounds bounds;
      const Json& least = range.at("min_val");
      const Json& most = range.at("max_val");
      if (!least.is_null() && integer_of(least) >= kLeastThatCounts) {
        bounds.least = integer_of(least);
      }
      if (!most.is_null()) bounds.most = integer_of(most);
      if (bounds != SizeBounds()) graph_.size_bounds[identifier_of(symbol)] = bounds;
    }
  }

  void read_outputs(const Json& module) {
    std::vector<const Json*> outputs;
    for (const Json& spec : array_at(module.at("signature"), "output_specs")) {
      const std::string& kind = union_kind(spec);
      if (kind != "user_output" && kind != "loss_output") {
        refuse(
            "it has an output of kind {}: it is not training IR; save what "
            "torch.export.export returns, without run_decompositions",
            kind);
      }
      outputs.push_back(&spec.begin()->at("arg"));
    }
    if (outputs.empty() || outputs.size() > 2) {
      refuse(
          "it returns {} values; a training graph returns the loss, or the loss and the number "
          "of items: export it with trireme.export(model, batch, path, loss=...)",
          outputs.size());
    }
    const Json& loss =
        outputs[0]->contains("as_tensor") ? outputs[0]->at("as_tensor") : *outputs[0];
    if (!loss.contains("name")) refuse("its first output is not a tensor but should be the loss");
    graph_.loss = find_tensor(root_scope_, loss.at("name"));
    const Value& value = graph_.values[graph_.loss.value];
    if (!value.type.sizes.empty() || !dtype_info(value.type.dtype).is_floating) {
      refuse(
          "its first output {} is {}, not a scalar loss: export it with trireme.export(model, "
          "batch, path, loss=...)",
          value.name, to_text(value.type));
    }
    if (outputs.size() == 2) read_items(*outputs[1]);
  }

  void read_items(const Json& json) {
    const Argument items = read_argument(root_scope_, json);
    if (const auto* id = std::get_if<ValueId>(&items)) {
      graph_.items = *id;
    } else if (const auto* expression = std::get_if<SymExpr>(&items)) {
      graph_.items = *expression;
    } else if (!std::holds_alternative<std::monostate>(items)) {
      refuse("its second output is not a number of items");
    }
  }

  const Json& program_;
  Graph graph_;
  Scope root_scope_;
  std::set<std::string> names_;
  std::map<std::string, int> num_copies_;  // of each name, the first not counted
  std::set<std::string> bound_symbols_;
};

}  // namespace

Result<Program> read_program(std::span<const std::byte> json, const std::string& record) {
  return schema::reading<Program>(record, [&] {
    const Json program = schema::parse_json(json);
    return ProgramReader(program).read();
  });
}

}  // namespace trireme
