#include "trireme/worker/peak_memory.h"

#include <cstddef>
#include <span>

#include "trireme/torch/counting_allocator.h"

namespace trireme {

Result<std::vector<int64_t>> gather_peak_bytes(int32_t rank, int32_t num_ranks,
                                               Transport& transport) {
  constexpr int32_t kTag = 0;  // nothing else travels between two steps
  int64_t peak = tensor_memory_now().peak_bytes;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&peak, 1));
  if (rank != 0) {
    TRIREME_TRY(const Ticket ticket, transport.post_send(0, kTag, bytes));
    TRIREME_TRY(transport.wait(ticket));
    return std::vector<int64_t>();
  }
  std::vector<int64_t> peaks = {peak};
  for (int32_t other = 1; other < num_ranks; ++other) {
    TRIREME_TRY(const Ticket ticket, transport.post_receive(other, kTag, bytes));
    TRIREME_TRY(transport.wait(ticket));
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace trireme
