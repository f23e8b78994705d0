#include "trireme/transport/add.h"

#include <cstring>

namespace trireme {
namespace {

template <typename Number>
void add_numbers(std::byte* __restrict sum, const std::byte* __restrict term, size_t size) {
  // Through memcpy, because a buffer may have any alignment.
  for (size_t offset = 0; offset < size; offset += sizeof(Number)) {
    Number left;
    Number right;
    std::memcpy(&left, sum + offset, sizeof left);
    std::memcpy(&right, term + offset, sizeof right);
    left += right;
    std::memcpy(sum + offset, &left, sizeof left);
  }
}

}  // namespace

void add_to(std::span<std::byte> sum, std::span<const std::byte> term, DType dtype) {
  if (dtype == DType::kFloat32) {
    add_numbers<float>(sum.data(), term.data(), sum.size());
  } else {
    add_numbers<double>(sum.data(), term.data(), sum.size());
  }
}

}  // namespace trireme
