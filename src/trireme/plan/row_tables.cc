#include "trireme/plan/row_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/human_bytes.h"
#include "trireme/base/one_line.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"
#include "trireme/plan/gradients.h"

namespace trireme {
namespace {

constexpr double kMostOfDense = 0.5;
constexpr double kLeastSavedBytes = 1e6;

ValueId tensor_of(const Node& node, std::string_view name) {
  const Argument* argument = find_argument(node, name);
  const auto* id = argument == nullptr ? nullptr : std::get_if<ValueId>(argument);
  return id == nullptr ? ValueId() : *id;
}

// Of a table of `num_rows` rows, how many are among so many ids that are drawn evenly.
double expected_rows(double num_rows, double num_ids) {
  return -num_rows * std::expm1(-num_ids / num_rows);
}

// By value of a table that nothing but row reads use: the number of indices of a step.
std::map<ValueId, double> indices_of_tables(const Graph& graph, int64_t step_samples) {
  const SymbolValues symbols = example_symbols(graph, step_samples);
  std::map<ValueId, double> counts;
  for (const Node& node : graph.nodes) {
    const std::optional<RowRead> read = row_read(node);
    for (const ValueId value : operands(node)) {
      if (read.has_value() && value == read->table && value != read->ids) continue;
      counts[value] = -1;  // read in another way
    }
    if (!read.has_value()) continue;
    const Result<std::vector<int64_t>> sizes =
        concrete_sizes(graph.values[read->ids.value].type.sizes, symbols);
    double count = 1;
    if (sizes.ok()) {
      for (const int64_t size : sizes.value()) count *= static_cast<double>(size);
    } else {
      count = INFINITY;  // the data decides
    }
    double& sum = counts[read->table];
    if (sum >= 0) sum += count;
  }
  std::erase_if(counts, [](const auto& entry) { return entry.second < 0; });
  return counts;
}

// The parameters with a gradient that a row read uses, ascending.
std::vector<int32_t> tables_of_reads(const Graph& graph) {
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) {
    if (const std::optional<RowRead> each = row_read(node)) read.insert(each->table);
  }
  const std::vector<bool> gets = gets_gradient(graph);
  std::vector<int32_t> inputs;
  for (size_t input = 0; input < graph.inputs.size(); ++input) {
    if (gets[input] && read.contains(graph.inputs[input].value)) {
      inputs.push_back(static_cast<int32_t>(input));
    }
  }
  return inputs;
}

}  // namespace

std::optional<RowRead> row_read(const Node& node) {
  const std::string_view name = base_name(node.op);
  if (name != "embedding" && name != "embedding_bag") return std::nullopt;
  const RowRead read{.table = tensor_of(node, "weight"), .ids = tensor_of(node, "indices")};
  if (!read.table.is_valid() || !read.ids.is_valid()) return std::nullopt;
  return read;
}

std::string_view to_text(SparseChoice choice) {
  return kSparseChoices[static_cast<size_t>(choice)];
}

Result<SparseChoice> parse_sparse_choice(std::string_view text) {
  for (size_t i = 0; i < std::size(kSparseChoices); ++i) {
    if (kSparseChoices[i] == text) return static_cast<SparseChoice>(i);
  }
  return Error{fmt::format("unknown choice {} of sparse gradients; known are {}", in_quotes(text),
                           fmt::join(kSparseChoices, ", "))};
}

double RowTable::row_exchange_bytes() const {
  return kRowIdBytes * ids + static_cast<double>(row_bytes) * rows;
}

double RowTable::dense_bytes() const {
  return static_cast<double>(row_bytes) * static_cast<double>(num_rows);
}

std::vector<RowTable> possible_row_tables(const Graph& graph, const Partition& partition,
                                          int64_t step_samples, int32_t dp) {
  const std::vector<bool> gets = gets_gradient(graph);
  const std::map<ValueId, double> counts = indices_of_tables(graph, step_samples);
  const std::vector<int32_t> tied = tied_inputs(partition);
  std::vector<RowTable> tables;
  for (int32_t input = 0; input < static_cast<int32_t>(graph.inputs.size()); ++input) {
    const auto found = counts.find(graph.inputs[input].value);
    if (!gets[input] || found == counts.end() || std::ranges::binary_search(tied, input)) continue;
    const TensorType& type = graph.values[found->first.value].type;
    const Result<std::vector<int64_t>> sizes = concrete_sizes(type.sizes, {});
    if (!sizes.ok() || sizes.value().size() != 2) continue;
    const int64_t num_rows = sizes.value()[0];
    const int64_t width = sizes.value()[1];
    if (num_rows == 0 || width == 0) continue;
    const auto rows = static_cast<double>(num_rows);
    tables.push_back({.input = input,
                      .num_rows = num_rows,
                      .row_bytes = width * dtype_info(accumulator_dtype(type.dtype)).size_bytes,
                      .ids = dp * expected_rows(rows, found->second / dp),
                      .rows = expected_rows(rows, found->second)});
  }
  return tables;
}

bool is_chosen(const RowTable& table, SparseChoice choice) {
  if (choice != SparseChoice::kAuto) return choice == SparseChoice::kAlways;
  const double saved = table.dense_bytes() - table.row_exchange_bytes();
  return saved >= kLeastSavedBytes &&
         table.row_exchange_bytes() <= kMostOfDense * table.dense_bytes();
}

std::vector<RowTable> choose_row_tables(const Graph& graph, const Partition& partition,
                                        const RowTableOptions& options) {
  std::vector<RowTable> tables =
      possible_row_tables(graph, partition, options.step_samples, options.dp);
  std::erase_if(tables, [&](const RowTable& table) { return !is_chosen(table, options.choice); });
  return tables;
}

std::vector<int32_t> inputs_of(std::span<const RowTable> tables) {
  std::vector<int32_t> inputs;
  for (const RowTable& table : tables) inputs.push_back(table.input);
  return inputs;
}

std::string row_tables_to_text(const Graph& graph, const Partition& partition,
                               const RowTableOptions& options) {
  if (options.dp == 1) return "";
  const std::vector<RowTable> tables =
      possible_row_tables(graph, partition, options.step_samples, options.dp);
  const std::vector<int32_t> tied = tied_inputs(partition);
  std::string text;
  for (const int32_t input : tables_of_reads(graph)) {
    if (std::ranges::find(tables, input, &RowTable::input) != tables.end()) continue;
    text += fmt::format("gradients of {} are summed whole: {}\n",
                        in_quotes(graph.inputs[input].names[0]),
                        std::ranges::binary_search(tied, input)
                            ? "several stages hold it"
                            : "not only embeddings read it, or it is no table of rows");
  }
  for (const RowTable& table : tables) {
    text += fmt::format(
        "gradients of {} are summed {}: {} of about {:.0f} of {} rows, {} of the whole table a "
        "step of {} samples\n",
        in_quotes(graph.inputs[table.input].names[0]),
        is_chosen(table, options.choice) ? "row by row" : "whole",
        human_bytes(static_cast<int64_t>(table.row_exchange_bytes())), table.rows, table.num_rows,
        human_bytes(static_cast<int64_t>(table.dense_bytes())), options.step_samples);
  }
  return text;
}

}  // namespace trireme
