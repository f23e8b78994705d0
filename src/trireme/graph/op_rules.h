// What the engine knows of each operator without running it: floating-point operations, what its
// results share memory with, and what it changes. One row an operator (all its overloads).
//
// An operator without a row runs as well: its results are assumed to share memory with every tensor
// it reads, and its flops are counted as the bytes that it reads and writes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/graph/graph.h"

namespace trireme {

// What the results of an operator share memory with.
enum class AliasKind : uint8_t {
  kFresh,    // nothing
  kView,     // its first tensor operand, always or sometimes
  kInPlace,  // it changes its first tensor operand and returns it
  kUnknown,  // perhaps with any operand
};

// How an operator is named when people count operators by kind.
enum class OpKind : uint8_t {
  kMatmul,
  kConvolution,
  kAttention,
  kNormalization,
  kElementwise,
  kReduction,
  kIndexing,
  kShape,
  kCreation,
  kLoss,
  kRandom,
  kOther,
};
[[nodiscard]] std::string_view to_text(OpKind kind);

// Concrete sizes of a node's tensors.
struct OpSizes {
  // By argument name; a list of tensors has several.
  std::map<std::string, std::vector<std::vector<int64_t>>, std::less<>> inputs;
  std::vector<std::vector<int64_t>> outputs;
};

struct OpRule {
  std::string_view name;  // as base_name() gives it: "linear"
  OpKind kind = OpKind::kOther;
  AliasKind alias = AliasKind::kFresh;
  // Floating-point operations of the forward pass; a multiply-add is two.
  double (*flops)(const OpSizes& sizes) = nullptr;
};

[[nodiscard]] std::span<const OpRule> op_rules();
// nullptr when there is no row.
[[nodiscard]] const OpRule* find_op_rule(std::string_view op);

// "linear" of "aten.linear.default"; of another name space "mylib.swish".
[[nodiscard]] std::string_view base_name(std::string_view op);
[[nodiscard]] bool is_aten(std::string_view op);
// A base name without the `_` at its end that says that the first tensor is changed in place.
[[nodiscard]] std::string_view without_in_place_mark(std::string_view name);
// True for the operators whose sizes make a large matrix product: they are never cheap enough to be
// run twice.
[[nodiscard]] bool is_heavy(OpKind kind);

}  // namespace trireme
