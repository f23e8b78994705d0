// RowExchange: which rows of its row tables the replicas of a stage read in a step, and the sums of
// the gradients of those rows (plan/row_tables.h).
//
//   rows.read(input, ids)              while forwards run
//   rows.message(kCounts), rows.finish(kCounts)
//   rows.message(kIds), rows.finish(kIds)
//   rows.message(sum_of_row_table(t)), rows.finish(sum_of_row_table(t))     after the last backward
//
// A message is a tensor that is summed in place over the replicas, in which each has filled its own
// part of zeros: so all of them know the ids of each, and by that the union, in ascending order.
// The rows of the union are packed and summed. A replica that has not read a row of it
// adds zeros: each sum has the bits that it has where the whole table is summed in the same order.
//
// All replicas decide alike, by what all know, that the whole table is summed after all: before the
// ids, where they and the rows can be no fewer bytes, and after them, where the union is so much of
// the table that copying costs more than is saved.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

class RowExchange {
 public:
  struct Table {
    int32_t input = 0;  // index into Graph::inputs
    at::Tensor sums;    // accumulator, a row for each of the table's
  };

  // Hears of rows, ascending, before a forward reads them.
  using OnRead = std::function<void(int32_t input, const at::Tensor& rows)>;

  struct Options {
    int32_t replica = 0;
    int32_t dp = 1;
    bool needs_rows = false;  // no table is summed whole, whatever it costs
    OnRead on_read;
  };
  RowExchange(std::vector<Table> tables, Options options);

  // Before the operator runs, which refuses what is out of range. Does nothing where the input is
  // no table.
  void read(int32_t input, const at::Tensor& ids);

  // Of an SX (RowExchangeStep of schedule.h), in their order; undefined where nothing travels.
  [[nodiscard]] at::Tensor message(int32_t exchange);
  void finish(int32_t exchange);
  // All of it, of one replica, which waits for no one.
  void finish_alone();
  [[nodiscard]] size_t num_tables() const { return tables_.size(); }
  [[nodiscard]] int32_t input(size_t table) const { return tables_[table].input; }

  // After SX1: the rows that any replica has read, ascending; undefined: all of them.
  [[nodiscard]] const at::Tensor& touched(size_t table) const { return states_[table].touched; }
  // After its message: their sums; undefined where the accumulator holds all.
  [[nodiscard]] const at::Tensor& sums(size_t table) const { return states_[table].packed; }

 private:
  struct State {
    std::vector<at::Tensor> ids;  // of each read, once each
    at::Tensor own;               // ids of this replica, ascending
    bool is_whole = false;        // the table is summed whole
    at::Tensor touched;
    at::Tensor packed;
  };

  [[nodiscard]] int64_t count(size_t table, int32_t replica) const;
  [[nodiscard]] int64_t ids_of(size_t table) const;
  at::Tensor counts();
  at::Tensor all_ids();
  at::Tensor rows(size_t table);
  void finish_counts();
  void finish_ids();

  std::vector<Table> tables_;
  std::vector<State> states_;
  Options options_;
  at::Tensor counts_;  // [table, replica]
  at::Tensor ids_;     // of tables that are not summed whole, by table and replica
};

}  // namespace trireme
