// Graph: a training model as an ordered list of operator calls on named tensors.
//
// The first output is the scalar mean loss of a micro-batch; the second, if any, the number of
// items it is the mean of. Sub-graphs that only switch gradients or autocast are flattened: their
// nodes carry the region they run in. Symbolic sizes are expressions (sym_expr.h) over symbols that
// the inputs bind; a symbol that only the data decides is bound by the node that makes it.
// `batch` says which symbol counts the samples, where the exporter knew. `offsets "o"` behind an
// input: its values are those of all samples joined, and input o says where each sample starts.
//
//   batch s0
//   parameter %p_w "fc.weight" f32[4,8] grad
//   input %x "x" f32[s0,8]
//   input %y "y" i64[s0]
//   region 1 in 0 no_grad
//   %linear = aten.linear.default(input=%x, weight=%p_w) -> f32[s0,4] @ fc Linear
//   %loss = aten.cross_entropy_loss.default(self=%linear, target=%y) -> f32[]
//   return %loss, s0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/base/strong_id.h"
#include "trireme/graph/dtype.h"
#include "trireme/graph/sym_expr.h"

namespace trireme {

using ValueId = StrongId<struct ValueTag>;    // index into Graph::values
using NodeId = StrongId<struct NodeTag>;      // index into Graph::nodes: execution order
using RegionId = StrongId<struct RegionTag>;  // index into Graph::regions; 0 is the whole graph

struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<SymExpr> sizes;
  std::vector<SymExpr> strides;  // in elements; as many as sizes
  bool operator==(const TensorType&) const = default;
};

struct Value {
  std::string name;  // unique in the graph
  TensorType type;
  bool operator==(const Value&) const = default;
};

// An enumeration of torch that is passed on as it is: its name there, such as "channels_last".
struct Layout {
  std::string name;
  bool operator==(const Layout&) const = default;
};
struct MemoryFormat {
  std::string name;
  bool operator==(const MemoryFormat&) const = default;
};
// Devices in an archive are those of the exporting machine; the runtime maps them to the rank's.
struct Device {
  std::string name;
  bool operator==(const Device&) const = default;
};

using Argument =
    std::variant<std::monostate,                       // None
                 ValueId,                              // a tensor
                 std::vector<std::optional<ValueId>>,  // a list of tensors, None allowed
                 SymExpr,                              // an int or float
                 bool, std::string,
                 std::vector<SymExpr>,  // a list of ints or floats
                 std::vector<bool>, DType, Layout, MemoryFormat, Device>;

struct NamedArgument {
  std::string name;
  Argument value;
  bool operator==(const NamedArgument&) const = default;
};

// One result of a node: a tensor, a list of tensors, or a number that binds a symbol.
struct NodeOutput {
  std::vector<ValueId> values;
  bool is_list = false;
  std::string symbol;  // not empty: the result is a number and binds this symbol
  bool operator==(const NodeOutput&) const = default;
};

struct Node {
  std::string op;  // "aten.linear.default"
  std::vector<NamedArgument> arguments;
  std::vector<NodeOutput> outputs;
  RegionId region{0};
  std::string module;        // the user's module name, such as "h.0.ln_1"; empty at the top
  std::string module_class;  // the last part of its class name, such as "LayerNorm"
  bool operator==(const Node&) const = default;
};

struct Region {
  enum class Kind : uint8_t { kRoot, kGradMode, kAutocast };
  Kind kind = Kind::kRoot;
  RegionId parent;
  bool is_enabled = true;
  DType autocast_dtype = DType::kBFloat16;
  bool operator==(const Region&) const = default;
};

struct GraphInput {
  enum class Kind : uint8_t { kParameter, kBuffer, kConstant, kUser };
  Kind kind = Kind::kUser;
  ValueId value;
  // The user's names; several for a tied parameter, in the model's order. One for the others.
  std::vector<std::string> names;
  bool requires_grad = false;  // of a parameter
  bool is_persistent = true;   // of a buffer: part of the state_dict
  // Of a user's jagged input: the name of the input that holds its offsets (input_layout.h).
  std::string offsets;
  bool operator==(const GraphInput&) const = default;
};

// Both ends are allowed.
struct SizeBounds {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
  bool operator==(const SizeBounds&) const = default;
};

struct Graph {
  std::vector<Value> values;
  std::vector<GraphInput> inputs;
  std::vector<Region> regions{Region{}};
  std::vector<Node> nodes;
  ValueId loss;
  // The number of items: a tensor, an expression, or (monostate) the batch.
  std::variant<std::monostate, ValueId, SymExpr> items;
  // Example values of the symbols, from the export.
  SymbolValues symbol_hints;
  // The sizes for which the model was traced, by symbol, where they are bounded.
  std::map<std::string, SizeBounds> size_bounds;
  // The symbol that counts the samples, where it is known; else batch_symbol() looks for it.
  std::string batch;
  bool operator==(const Graph&) const = default;
};

[[nodiscard]] std::string to_text(const TensorType& type);
[[nodiscard]] std::string to_text(const Graph& graph);
[[nodiscard]] std::string node_to_text(const Graph& graph, const Node& node);
[[nodiscard]] Result<Graph> parse_graph(std::string_view text);

// Every value is defined once and before its use, names are unique, regions nest, parameters have
// names, the loss is a scalar.
[[nodiscard]] Status verify_graph(const Graph& graph);

// All tensors a node reads, in argument order, with repetitions.
[[nodiscard]] std::vector<ValueId> operands(const Node& node);
// All tensors a node makes.
[[nodiscard]] std::vector<ValueId> results(const Node& node);
// All symbols that occur in a node's arguments.
[[nodiscard]] std::set<std::string> symbols_read(const Node& node);
// "aten.linear.default of module 'layers.0.fc'"; the operator alone outside of any module.
[[nodiscard]] std::string describe_node(const Node& node);
[[nodiscard]] const Argument* find_argument(const Node& node, std::string_view name);

// The symbol that counts the samples: Graph::batch, else what dim 0 of the user's inputs has in
// common, else the only symbol that they have. Jagged inputs and inputs of fixed sizes do not
// count. nullopt: there is no such symbol.
[[nodiscard]] std::optional<std::string> batch_symbol(const Graph& graph);

// Strides of a contiguous tensor of these sizes.
[[nodiscard]] std::vector<SymExpr> contiguous_strides(const std::vector<SymExpr>& sizes);

}  // namespace trireme
