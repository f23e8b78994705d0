// The tables of an archive: where its weights lie, and which are tied.

#include "trireme/import/program_reader.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  static_cast<void>(fuzz::is_accepted(read_tensor_table(bytes, "weights_config.json", "m/data/")));
  static_cast<void>(fuzz::is_accepted(read_tie_groups(bytes, "trireme.json")));
  return 0;
}
