// The costs of passes on a command line.

#include "trireme/schedule/pass_costs_text.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static_cast<void>(fuzz::is_accepted(parse_pass_costs(fuzz::text_of(data, size))));
  return 0;
}
