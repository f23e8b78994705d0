// Models that are given by their sizes on the command line.

#include "trireme/cost/model_spec.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<ModelSpec> spec = parse_model_spec(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(spec)) return 0;
  fuzz::expect_text_form(spec.value(), parse_model_spec);
  TRIREME_CHECK(num_parameters(spec.value()) > 0, "a model has no parameters");
  return 0;
}
