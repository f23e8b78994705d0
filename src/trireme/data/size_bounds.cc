#include "trireme/data/size_bounds.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "trireme/data/batches.h"

namespace trireme {
namespace {

// The words for what is allowed, where `size` is not.
std::optional<std::string> violation(const Graph& graph, const std::string& symbol, int64_t size) {
  const auto found = graph.size_bounds.find(symbol);
  if (found == graph.size_bounds.end()) return std::nullopt;
  const SizeBounds& bounds = found->second;
  if (size >= bounds.least && size <= bounds.most) return std::nullopt;
  if (bounds.most == SizeBounds().most) return fmt::format("at least {}", bounds.least);
  if (bounds.least == SizeBounds().least) return fmt::format("at most {}", bounds.most);
  return fmt::format("{} to {}", bounds.least, bounds.most);
}

}  // namespace

Status check_row_sizes(const Graph& graph, const SymbolValues& symbols) {
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != GraphInput::Kind::kUser) continue;
    const std::vector<SymExpr>& sizes = graph.values[input.value.value].type.sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const auto size = sizes[d].is_symbol() ? symbols.find(sizes[d].name) : symbols.end();
      if (size == symbols.end()) continue;
      const std::optional<std::string> allowed = violation(graph, size->first, size->second);
      if (!allowed.has_value()) continue;
      return Error{
          fmt::format("dim {} of input '{}' is {} in the data, but the model was exported for {}",
                      d, input.names[0], size->second, *allowed)};
    }
  }
  return Status();
}

Status check_micro_batch_sizes(const Graph& graph, int64_t num_samples, int32_t dp,
                               int32_t micro_batches) {
  const std::optional<std::string> symbol = batch_symbol(graph);
  if (!symbol.has_value() || !graph.size_bounds.contains(*symbol)) return Status();
  const StepShares shares = share_step(num_samples, dp, micro_batches);
  for (const auto& replica : shares.shares) {
    for (const StepShares::Share& share : replica) {
      const std::optional<std::string> allowed = violation(graph, *symbol, share.size);
      if (!allowed.has_value()) continue;
      return Error{
          fmt::format("a micro-batch of a step of {} samples has {}, but the model was exported "
                      "for {}; change --batch, --dp or --micro-batches",
                      num_samples, share.size, *allowed)};
    }
  }
  return Status();
}

}  // namespace trireme
