// Plans: YAML that people edit.

#include "trireme/plan/plan.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Plan> plan = parse_plan(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(plan)) return 0;
  fuzz::expect_text_form(plan.value(), parse_plan);
  TRIREME_CHECK(parse_plan(to_text(plan.value())).value() == plan.value(), "a plan has changed");
  static_cast<void>(to_table(plan.value()));
  return 0;
}
