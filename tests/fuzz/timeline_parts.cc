// The parts of a timeline that a run has left; here, two halves of the bytes.

#include <vector>

#include "trireme/trace/timeline_files.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  for (const auto& parts :
       {std::vector{bytes}, std::vector{bytes.first(size / 2), bytes.subspan(size / 2)}}) {
    const Result<Timeline> timeline = join_parts(parts);
    if (!fuzz::is_accepted(timeline)) continue;
    TRIREME_CHECK(verify_timeline(timeline.value()).ok(), "what was joined verifies");
    fuzz::expect_text_form(timeline.value(), parse_timeline);
  }
  return 0;
}
