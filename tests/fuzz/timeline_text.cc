// The text form of a Timeline, and the report on it.

#include "trireme/trace/report_text.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Timeline> timeline = parse_timeline(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(timeline)) return 0;
  fuzz::expect_text_form(timeline.value(), parse_timeline);
  TRIREME_CHECK(verify_timeline(timeline.value()).ok(), "what was read verifies");
  // One line a rank, of which there may be a million.
  if (timeline.value().num_ranks() > 64) return 0;
  static_cast<void>(report_table(timeline.value(), &timeline.value()));
  static_cast<void>(chrome_trace(timeline.value()));
  return 0;
}
