#include "trireme/worker/allocator.h"

#include <malloc.h>

namespace trireme {

void keep_freed_memory() {
  constexpr int kOneGibibyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kOneGibibyte);
  mallopt(M_TRIM_THRESHOLD, kOneGibibyte);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace trireme
