#include "trireme/data/model_inputs.h"

#include <fmt/format.h>

namespace trireme {

Result<std::vector<InputSpec>> input_specs(const Graph& graph) {
  std::vector<InputSpec> specs;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser) continue;
    const TensorType& type = graph.values[input.value.value].type;
    if (type.sizes.empty()) {
      return Error{fmt::format("the model's input '{}' has no batch dim", input.names[0])};
    }
    InputSpec spec{.name = input.names[0], .dtype = type.dtype, .sizes = {}};
    for (size_t d = 1; d < type.sizes.size(); ++d) {
      spec.sizes.push_back(type.sizes[d].is_integer() ? std::optional(type.sizes[d].integer)
                                                      : std::nullopt);
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

Result<SymbolValues> bind_symbols(const Graph& graph, const Dataset& data) {
  SymbolValues symbols;
  const std::string batch = batch_symbol(graph).value_or("");
  size_t index = 0;
  // Bare symbols first; expressions over them are checked afterwards.
  for (const bool is_check : {false, true}) {
    index = 0;
    for (const GraphInput& input : graph.inputs) {
      if (input.kind != GraphInput::Kind::kUser) continue;
      const std::vector<SymExpr>& sizes = graph.values[input.value.value].type.sizes;
      const std::vector<int64_t> row = data.row_sizes(index++);
      for (size_t d = 1; d < sizes.size(); ++d) {
        if (!is_check && sizes[d].is_symbol()) symbols.try_emplace(sizes[d].name, row[d - 1]);
        if (!is_check) continue;
        TRIREME_TRY(int64_t expected, evaluate_integer(sizes[d], symbols));
        if (expected != row[d - 1]) {
          return Error{fmt::format("dim {} of input '{}' is {} in the data, but {} is expected", d,
                                   input.names[0], row[d - 1], expected)};
        }
      }
    }
  }
  return symbols;
}

}  // namespace trireme
