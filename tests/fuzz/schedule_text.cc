// The text form of a Schedule, and its verifier.

#include "trireme/schedule/drawing.h"
#include "trireme/schedule/schedule.h"
#include "trireme/schedule/verify.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Schedule> schedule = parse_schedule(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(schedule)) return 0;
  fuzz::expect_text_form(schedule.value(), parse_schedule);
  if (!fuzz::is_accepted(verify_schedule(schedule.value()))) return 0;
  static_cast<void>(peak_in_flight(schedule.value()));
  // What a step finds done has no time.
  if (schedule.value().num_found.empty()) static_cast<void>(draw(schedule.value()));
  return 0;
}
