#include "trireme/comm/choice.h"

#include <algorithm>

namespace trireme {
namespace {

constexpr int64_t kMegabyte = 1'000'000;
constexpr int64_t kMostUnits = 400;  // of a stage

int64_t most_gradient_bytes(const Workload& workload) {
  std::vector<int64_t> bytes(workload.tasks.size(), 0);
  for (const Transfer& transfer : workload.transfers) {
    if (is_message(transfer.kind)) continue;
    bytes[static_cast<size_t>(transfer.producer.device)] += transfer.bytes;
  }
  return *std::ranges::max_element(bytes);
}

bool is_cut(const PolicyRow& row) {
  return row.defaults.chunk_bytes > 0 || row.name.starts_with("trirace");
}

// The policy's own first.
std::vector<PolicyOptions> sizes_of(const PolicyRow& row, int64_t most_bytes) {
  std::vector<PolicyOptions> sizes;
  const int64_t own = row.defaults.chunk_bytes;
  if (own == 0 || most_bytes / own <= kMostUnits) sizes.emplace_back();
  for (int64_t bytes = kMegabyte; bytes <= 64 * kMegabyte; bytes *= 2) {
    if (is_cut(row) && most_bytes / bytes <= kMostUnits) {
      sizes.push_back(
          {.chunk_bytes = bytes, .credit_bytes = row.defaults.credit_bytes > 0 ? 4 * bytes : 0});
    }
    if (row.defaults.bucket_bytes > 0) sizes.push_back({.bucket_bytes = bytes});
  }
  return sizes;
}

}  // namespace

Result<std::vector<TriedPolicy>> try_policies(const Workload& workload) {
  TRIREME_TRY(verify_workload(workload));
  const int64_t most_bytes = most_gradient_bytes(workload);
  std::vector<TriedPolicy> tried;
  for (const PolicyRow& row : policy_rows()) {
    for (const PolicyOptions& options : sizes_of(row, most_bytes)) {
      TRIREME_TRY(const StepsResult result, run_steps(workload, row, {.policy = options}));
      tried.push_back(
          {.row = &row, .options = options, .step = result.step, .exposed = result.exposed});
    }
  }
  std::ranges::stable_sort(tried, {}, &TriedPolicy::step);
  return tried;
}

}  // namespace trireme
