#include "trireme/torch/counting_allocator.h"

#include <atomic>

#include <malloc.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};

void add(int64_t bytes) {
  const int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t before = most.load(std::memory_order_relaxed);
  while (now > before && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

// What the C library sets aside is known from the address alone, so nothing is written down.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr data = inner_->allocate(size);
    if (data.get() == nullptr) return data;
    TRIREME_CHECK(data.get() == data.get_context(), "memory of another allocator than malloc's");
    add(static_cast<int64_t>(malloc_usable_size(data.get())));
    inner_deleter_ = data.get_deleter();
    TRIREME_CHECK(data.compare_exchange_deleter(inner_deleter_, &CountingAllocator::release),
                  "the deleter is the allocator's");
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::release; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    inner_->copy_data(to, from, count);
  }

 private:
  static void release(void* memory) {
    held.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
    inner_deleter_(memory);
  }

  c10::Allocator* inner_;
  static std::atomic<c10::DeleterFnPtr> inner_deleter_;  // the same for all memory
};

std::atomic<c10::DeleterFnPtr> CountingAllocator::inner_deleter_{nullptr};

}  // namespace

void count_tensor_memory() {
  static CountingAllocator counting(c10::GetCPUAllocator());
  // Above that of torch itself, which is 0.
  c10::SetCPUAllocator(&counting, /*priority=*/1);
}

TensorMemory tensor_memory_now() {
  return {.bytes = held.load(std::memory_order_relaxed),
          .peak_bytes = most.load(std::memory_order_relaxed)};
}

void reset_tensor_memory_peak() { most.store(held.load(std::memory_order_relaxed)); }

}  // namespace trireme
