#include "trireme/torch/row_exchange.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/plan/row_tables.h"
#include "trireme/schedule/schedule.h"

namespace trireme {
namespace {

// Packing and unpacking pass over the rows twice, sending at the memory's rate at best: beyond this
// part of a table there is nothing to gain.
constexpr double kMostOfTable = 0.875;

at::Tensor sorted_once(const at::Tensor& ids) {
  return std::get<0>(at::_unique2(ids.reshape({-1}).to(at::kLong), /*sorted=*/true));
}

}  // namespace

RowExchange::RowExchange(std::vector<Table> tables, Options options)
    : tables_(std::move(tables)), states_(tables_.size()), options_(std::move(options)) {}

void RowExchange::read(int32_t input, const at::Tensor& ids) {
  const auto table = std::ranges::find(tables_, input, &Table::input);
  if (table == tables_.end()) return;
  const at::Tensor rows = sorted_once(ids);
  if (rows.numel() == 0 || rows[0].item<int64_t>() < 0 ||
      rows[-1].item<int64_t>() >= table->sums.size(0)) {
    return;
  }
  options_.on_read(input, rows);
  states_[static_cast<size_t>(table - tables_.begin())].ids.push_back(rows);
}

at::Tensor RowExchange::message(int32_t exchange) {
  if (exchange == static_cast<int32_t>(RowExchangeStep::kCounts)) return counts();
  if (exchange == static_cast<int32_t>(RowExchangeStep::kIds)) return all_ids();
  return rows(static_cast<size_t>(exchange - sum_of_row_table(0)));
}

void RowExchange::finish(int32_t exchange) {
  if (exchange == static_cast<int32_t>(RowExchangeStep::kCounts)) return finish_counts();
  if (exchange == static_cast<int32_t>(RowExchangeStep::kIds)) return finish_ids();
}

void RowExchange::finish_alone() {
  for (int32_t exchange = 0; exchange < sum_of_row_table(static_cast<int32_t>(tables_.size()));
       ++exchange) {
    static_cast<void>(message(exchange));
    finish(exchange);
  }
}

int64_t RowExchange::count(size_t table, int32_t replica) const {
  return static_cast<int64_t>(
      counts_.const_data_ptr<double>()[table * static_cast<size_t>(options_.dp) +
                                       static_cast<size_t>(replica)]);
}

int64_t RowExchange::ids_of(size_t table) const {
  int64_t sum = 0;
  for (int32_t replica = 0; replica < options_.dp; ++replica) sum += count(table, replica);
  return sum;
}

at::Tensor RowExchange::counts() {
  counts_ = at::zeros({static_cast<int64_t>(tables_.size()), options_.dp}, at::kDouble);
  for (size_t table = 0; table < tables_.size(); ++table) {
    State& state = states_[table];
    state.own = state.ids.empty() ? at::empty({0}, at::kLong) : sorted_once(at::cat(state.ids));
    state.ids.clear();
    counts_[static_cast<int64_t>(table)][options_.replica] = state.own.numel();
  }
  return counts_;
}

void RowExchange::finish_counts() {
  for (size_t table = 0; table < tables_.size(); ++table) {
    const at::Tensor& sums = tables_[table].sums;
    const int64_t row_bytes = sums.size(1) * sums.element_size();
    int64_t most = 0;  // the union has as many rows at least
    for (int32_t replica = 0; replica < options_.dp; ++replica) {
      most = std::max(most, count(table, replica));
    }
    states_[table].is_whole =
        !options_.needs_rows &&
        kRowIdBytes * ids_of(table) + row_bytes * most >= row_bytes * sums.size(0);
  }
}

at::Tensor RowExchange::all_ids() {
  int64_t num_ids = 0;
  for (size_t table = 0; table < tables_.size(); ++table) {
    if (!states_[table].is_whole) num_ids += ids_of(table);
  }
  if (num_ids == 0) return at::Tensor();
  ids_ = at::zeros({num_ids}, at::kDouble);
  int64_t offset = 0;
  for (size_t table = 0; table < tables_.size(); ++table) {
    if (states_[table].is_whole) continue;
    int64_t own = offset;
    for (int32_t replica = 0; replica < options_.replica; ++replica) own += count(table, replica);
    ids_.narrow(0, own, states_[table].own.numel()).copy_(states_[table].own);
    offset += ids_of(table);
  }
  return ids_;
}

void RowExchange::finish_ids() {
  int64_t offset = 0;
  for (size_t table = 0; table < tables_.size(); ++table) {
    State& state = states_[table];
    state.own.reset();
    if (state.is_whole) continue;
    const int64_t num_ids = ids_of(table);
    state.touched =
        num_ids == 0 ? at::empty({0}, at::kLong) : sorted_once(ids_.narrow(0, offset, num_ids));
    offset += num_ids;
    const auto num_rows = static_cast<double>(tables_[table].sums.size(0));
    if (!options_.needs_rows &&
        static_cast<double>(state.touched.numel()) > kMostOfTable * num_rows) {
      state.is_whole = true;
      state.touched.reset();
    }
  }
  ids_.reset();
}

at::Tensor RowExchange::rows(size_t table) {
  State& state = states_[table];
  const at::Tensor& sums = tables_[table].sums;
  if (state.is_whole) return sums;
  state.packed = sums.index_select(0, state.touched);
  return state.packed.numel() == 0 ? at::Tensor() : state.packed;
}

}  // namespace trireme
