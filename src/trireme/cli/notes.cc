#include "trireme/cli/notes.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"
#include "trireme/graph/draws.h"

namespace trireme {

std::string note_on_weights(const Archive& archive) {
  const std::vector<GraphInput>& inputs = archive.graph().inputs;
  const auto total = std::count_if(inputs.begin(), inputs.end(), [](const GraphInput& input) {
    return input.kind == GraphInput::Kind::kParameter;
  });
  const int64_t without = archive.num_parameters_without_values();
  if (without == 0) return "";
  return fmt::format("  {} of {} parameters have no values in the archive; train with --init\n",
                     without, total);
}

std::string note_on_samples(const Archive& archive) {
  if (archive.is_mean_over_samples()) return "";
  return "  the loss is not a mean over samples: it changes with --micro-batches and --dp\n";
}

std::string note_on_samples(const Archive& archive, const Plan& plan) {
  const int64_t parts = int64_t{plan.micro_batches} * plan.dp;
  if (archive.is_mean_over_samples() || parts == 1) return "";
  return fmt::format(
      "the loss is not a mean over samples: each of the {} micro-batches of a batch is a batch of "
      "its own, as in gradient accumulation; --micro-batches 1 --dp 1 keeps batches whole",
      parts);
}

std::string note_on_draws(const Graph& graph) {
  const auto first = std::ranges::find_if(graph.nodes, is_random_in_evaluation);
  if (first == graph.nodes.end()) return "";
  return fmt::format(
      "the model draws random numbers in evaluation, too ({}); if it should not, export it with "
      "trireme.export(train=False) as well and give that archive by --eval-model",
      describe_node(*first));
}

std::string note_on_row_tables(const Graph& graph, const BucketOptions& buckets) {
  if (buckets.row_tables.empty()) return "";
  std::vector<std::string> names;
  for (const int32_t input : buckets.row_tables) {
    names.push_back(in_quotes(graph.inputs[static_cast<size_t>(input)].names[0]));
  }
  return fmt::format("gradients of {} are summed over replicas row by row; trireme plan says why",
                     fmt::join(names, ", "));
}

}  // namespace trireme
