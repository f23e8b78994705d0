// Files of tensors: safetensors and npy.

#include "trireme/import/npy.h"
#include "trireme/import/safetensors.h"

#include "fuzz.h"

using namespace trireme;

namespace {

// What a reader says it has lies in the file, and is as large as its sizes say.
void expect_whole(const TensorView& tensor) {
  int64_t num_elements = 1;
  for (const int64_t each : tensor.sizes) {
    TRIREME_CHECK(each >= 0, "a size is negative");
    num_elements *= each;
  }
  const auto num_bytes = static_cast<int64_t>(tensor.bytes.size());
  TRIREME_CHECK(num_bytes == num_elements * dtype_info(tensor.dtype).size_bytes, "a size is wrong");
  unsigned sum = 0;
  for (const std::byte each : tensor.bytes) sum += static_cast<unsigned>(each);
  [[maybe_unused]] const volatile unsigned is_read = sum;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  const Result<SafetensorsFile> tensors = SafetensorsFile::open(file.path());
  if (fuzz::is_accepted(tensors)) {
    for (const auto& [name, tensor] : tensors.value().tensors()) expect_whole(tensor);
  }
  const Result<NpyFile> array = open_npy(file.path());
  if (fuzz::is_accepted(array)) expect_whole(array.value().array);
  return 0;
}
