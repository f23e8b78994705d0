// The text form of a Timeline.

#include "trireme/trace/timeline.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Timeline> timeline = parse_timeline(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(timeline)) return 0;
  fuzz::expect_text_form(timeline.value(), parse_timeline);
  TRIREME_CHECK(verify_timeline(timeline.value()).ok(), "what was read verifies");
  return 0;
}
