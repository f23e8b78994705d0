// gather_values(): a number of each rank, on rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/transport.h"

namespace trireme {

// By rank on rank 0; empty on the others. Of all ranks, between two steps.
template <typename T>
[[nodiscard]] Result<std::vector<T>> gather_values(T own, int32_t rank, int32_t num_ranks,
                                                   Transport& transport) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int32_t kTag = 0;  // nothing else travels between two steps
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&own, 1));
  if (rank != 0) {
    TRIREME_TRY(const Ticket ticket, transport.post_send(0, kTag, bytes));
    TRIREME_TRY(transport.wait(ticket));
    return std::vector<T>();
  }
  std::vector<T> values = {own};
  for (int32_t other = 1; other < num_ranks; ++other) {
    TRIREME_TRY(const Ticket ticket, transport.post_receive(other, kTag, bytes));
    TRIREME_TRY(transport.wait(ticket));
    values.push_back(own);
  }
  return values;
}

}  // namespace trireme
