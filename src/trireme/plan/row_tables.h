// Row tables: parameters of which a batch reads a few rows, so that the gradients of those rows,
// and not of the whole table, are summed over replicas.
//
// A parameter can be one where it is of two dims, no other stage holds it, and all that reads it
// are the operators embedding and embedding_bag, as their table. Its gradient is zero but in the
// rows whose numbers (ids) are among the operators' indices. In each step the replicas tell each
// other how many ids they have, then which, and sum the rows of the union of all. Of bytes that the
// all-reduces of a step carry, that is
//
//   rows    8 ids + row_bytes union     ids: those of each replica, once each, all replicas
//   dense   row_bytes num_rows
//
// What a step will read is not known before: where n indices of a table of N rows are drawn evenly,
// N (1 - exp(-n / N)) rows are expected. Real data repeats some ids more often than others, and
// reads fewer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/partition.h"

namespace trireme {

// An operator that reads rows of a table.
struct RowRead {
  ValueId table;
  ValueId ids;
};
[[nodiscard]] std::optional<RowRead> row_read(const Node& node);

// Whether gradients of tables travel as rows: where it saves bytes, nowhere, everywhere.
enum class SparseChoice : uint8_t { kAuto, kNever, kAlways };
inline constexpr std::string_view kSparseChoices[] = {"auto", "never", "always"};
[[nodiscard]] std::string_view to_text(SparseChoice choice);
// Error: an unknown word; it lists the known ones.
[[nodiscard]] Result<SparseChoice> parse_sparse_choice(std::string_view text);

struct RowTable {
  int32_t input = 0;  // index into Graph::inputs
  int64_t num_rows = 0;
  int64_t row_bytes = 0;  // of the gradient of a row, as it is summed
  double ids = 0;         // expected of a step: those of each replica, once each
  double rows = 0;        // the same: those that any replica reads

  [[nodiscard]] double row_exchange_bytes() const;
  [[nodiscard]] double dense_bytes() const;
};

// Bytes of the ids of rows on the wire.
inline constexpr int64_t kRowIdBytes = 8;

// The parameters with a gradient that can be row tables, ascending, where a step has so many
// samples over so many replicas.
[[nodiscard]] std::vector<RowTable> possible_row_tables(const Graph& graph,
                                                        const Partition& partition,
                                                        int64_t step_samples, int32_t dp);

struct RowTableOptions {
  SparseChoice choice = SparseChoice::kAuto;
  int64_t step_samples = 1;
  int32_t dp = 1;
};

// With kAuto: where the rows carry at most half of the bytes, and a megabyte less, which is what
// the latencies of two more collectives are worth.
[[nodiscard]] bool is_chosen(const RowTable& table, SparseChoice choice);

// Those that are chosen. One replica has nothing to sum, but it need not touch the other rows.
[[nodiscard]] std::vector<RowTable> choose_row_tables(const Graph& graph,
                                                      const Partition& partition,
                                                      const RowTableOptions& options);

// Their inputs.
[[nodiscard]] std::vector<int32_t> inputs_of(std::span<const RowTable> tables);

// A line a table that an embedding reads: what was chosen, and why; empty where there is none.
[[nodiscard]] std::string row_tables_to_text(const Graph& graph, const Partition& partition,
                                             const RowTableOptions& options);

}  // namespace trireme
