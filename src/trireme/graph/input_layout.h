// How the samples of a batch lie in each of the user's inputs.
//
//   kRows     x f32[s0,8], y f32[5,s0,8]   a row a sample, along the dim of the batch
//   kValues   indices i64[s1]              jagged: each sample has its own number of values, and
//                                          those of all samples are joined in dim 0
//   kOffsets  offsets i64[s0] or [s0+1]    where each sample starts in the values; the long form
//                                          also says where the last one ends
//   kShared   mask bool[16,16]             without a batch: the same for all samples
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"

namespace trireme {

enum class InputCut : uint8_t { kRows, kValues, kOffsets, kShared };

struct InputLayout {
  int32_t input = 0;  // index into Graph::inputs
  InputCut cut = InputCut::kRows;
  size_t batch_dim = 0;   // of kRows
  size_t offsets = 0;     // of kValues: the index of its offsets among the layouts
  bool says_end = false;  // of kOffsets: one entry more than samples
};

// One for each of the user's inputs, in their order. Errors: the batch is no symbol, or an input
// has it in two dims or as a part of a size; offsets that are no input, no integers, or have
// another size than the batch.
[[nodiscard]] Result<std::vector<InputLayout>> input_layouts(const Graph& graph);

// The index into Graph::inputs of a user's input. The error lists the names.
[[nodiscard]] Result<size_t> find_user_input(const Graph& graph, const std::string& name);

// The user's inputs, each with its type: "x f32[s0,8], y i64[s0]".
[[nodiscard]] std::string describe_inputs(const Graph& graph);

}  // namespace trireme
