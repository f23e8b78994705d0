// Step costs: YAML that people and programs write.

#include "trireme/cost/step_costs.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<StepCosts> costs = parse_step_costs(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(costs)) return 0;
  fuzz::expect_text_form(costs.value(), parse_step_costs);
  TRIREME_CHECK(parse_step_costs(to_text(costs.value())).value() == costs.value(),
                "step costs have changed");
  return 0;
}
