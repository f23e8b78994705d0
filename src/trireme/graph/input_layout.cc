#include "trireme/graph/input_layout.h"

#include <algorithm>

#include <fmt/format.h>

namespace trireme {
namespace {

const std::vector<SymExpr>& sizes_of(const Graph& graph, const GraphInput& input) {
  return graph.values[input.value.value].type.sizes;
}

bool reads(const SymExpr& size, const std::string& symbol) {
  std::set<std::string> symbols;
  collect_symbols(size, symbols);
  return symbols.contains(symbol);
}

std::string described(const Graph& graph, const GraphInput& input) {
  return fmt::format("{} {}", input.names[0], to_text(graph.values[input.value.value].type));
}

Status lay_out_offsets(const Graph& graph, const std::string& batch, InputLayout& layout) {
  const GraphInput& input = graph.inputs[layout.input];
  const TensorType& type = graph.values[input.value.value].type;
  const SymExpr symbol = SymExpr::of_symbol(batch);
  layout.cut = InputCut::kOffsets;
  layout.says_end =
      type.sizes.size() == 1 && type.sizes[0] == SymExpr::of_call("add", {symbol, SymExpr(1)});
  const bool is_integer = type.dtype == DType::kInt64 || type.dtype == DType::kInt32;
  if (is_integer && type.sizes.size() == 1 && (layout.says_end || type.sizes[0] == symbol)) {
    return Status();
  }
  return Error{
      fmt::format("the input {} holds offsets, but is not a vector of integers, one for each "
                  "sample of the batch {}, or one more",
                  described(graph, input), batch)};
}

Status lay_out_rows(const Graph& graph, const std::string& batch, InputLayout& layout) {
  const GraphInput& input = graph.inputs[layout.input];
  const std::vector<SymExpr>& sizes = sizes_of(graph, input);
  layout.cut = InputCut::kShared;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!reads(sizes[d], batch)) continue;
    if (!sizes[d].is_symbol()) {
      return Error{fmt::format(
          "dim {} of the input {} is not the batch {} but depends on it; give the model an input "
          "with one row for each sample",
          d, described(graph, input), batch)};
    }
    if (layout.cut == InputCut::kRows) {
      return Error{fmt::format("the input {} has the batch {} in two dims, so it cannot be cut",
                               described(graph, input), batch)};
    }
    layout.cut = InputCut::kRows;
    layout.batch_dim = d;
  }
  return Status();
}

// The values' own symbol may be nothing else's, or two inputs would be cut in different ways.
Status check_values(const Graph& graph, const std::string& batch, const GraphInput& input) {
  const std::vector<SymExpr>& sizes = sizes_of(graph, input);
  if (!sizes.empty() && sizes[0].is_symbol() && sizes[0].name != batch) return Status();
  return Error{
      fmt::format("the input {} is jagged, but dim 0 is not a symbolic size of its own; export it "
                  "with trireme.export(..., jagged={{\"{}\": \"{}\"}})",
                  described(graph, input), input.names[0], input.offsets)};
}

// Whatever else has the size of jagged values would be cut otherwise than they are.
Status check_sizes_of_values(const Graph& graph, const std::vector<InputLayout>& layouts) {
  for (const InputLayout& values : layouts) {
    if (values.cut != InputCut::kValues) continue;
    const GraphInput& jagged = graph.inputs[values.input];
    const std::string& symbol = sizes_of(graph, jagged)[0].name;
    for (const InputLayout& other : layouts) {
      const GraphInput& input = graph.inputs[other.input];
      const std::vector<SymExpr>& sizes = sizes_of(graph, input);
      for (size_t d = other.cut == InputCut::kValues ? 1 : 0; d < sizes.size(); ++d) {
        if (!reads(sizes[d], symbol)) continue;
        return Error{fmt::format(
            "dim {} of the input {} has the size of the jagged input {}; if it is cut by {} as "
            "well, say so by --jagged {}={}",
            d, described(graph, input), jagged.names[0], jagged.offsets, input.names[0],
            jagged.offsets)};
      }
    }
  }
  return Status();
}

}  // namespace

Result<size_t> find_user_input(const Graph& graph, const std::string& name) {
  std::string known;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (input.kind != GraphInput::Kind::kUser) continue;
    if (input.names[0] == name) return i;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", input.names[0]);
  }
  return Error{fmt::format("the model has no input {}; it has {}", name, known)};
}

std::string describe_inputs(const Graph& graph) {
  std::string text;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser) continue;
    text += (text.empty() ? "" : ", ") + described(graph, input);
  }
  return text;
}

Result<std::vector<InputLayout>> input_layouts(const Graph& graph) {
  const std::optional<std::string> batch = batch_symbol(graph);
  if (!batch.has_value()) {
    return Error{fmt::format("the batch is not one symbolic size of the inputs ({})",
                             describe_inputs(graph))};
  }
  std::vector<InputLayout> layouts;
  std::set<std::string> offsets;
  for (const GraphInput& input : graph.inputs) {
    if (!input.offsets.empty()) offsets.insert(input.offsets);
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (input.kind != GraphInput::Kind::kUser) continue;
    InputLayout layout{.input = static_cast<int32_t>(i)};
    if (!input.offsets.empty()) {
      TRIREME_TRY(check_values(graph, *batch, input));
      layout.cut = InputCut::kValues;
    } else if (offsets.contains(input.names[0])) {
      TRIREME_TRY(lay_out_offsets(graph, *batch, layout));
    } else {
      TRIREME_TRY(lay_out_rows(graph, *batch, layout));
    }
    layouts.push_back(layout);
  }
  const bool has_batch = std::any_of(layouts.begin(), layouts.end(), [](const InputLayout& layout) {
    return layout.cut == InputCut::kRows || layout.cut == InputCut::kOffsets;
  });
  if (!has_batch) {
    return Error{fmt::format("no input has the batch {} ({})", *batch, describe_inputs(graph))};
  }
  for (InputLayout& layout : layouts) {
    if (layout.cut != InputCut::kValues) continue;
    const std::string& name = graph.inputs[layout.input].offsets;
    const auto found = std::find_if(layouts.begin(), layouts.end(), [&](const InputLayout& other) {
      return graph.inputs[other.input].names[0] == name;
    });
    if (found == layouts.end() || found->cut != InputCut::kOffsets) {
      return Error{fmt::format("{} is to be cut by {}, which is no input with offsets",
                               graph.inputs[layout.input].names[0], name)};
    }
    layout.offsets = static_cast<size_t>(found - layouts.begin());
  }
  TRIREME_TRY(check_sizes_of_values(graph, layouts));
  return layouts;
}

}  // namespace trireme
