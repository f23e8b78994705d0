// Profiles: YAML that people edit.

#include "trireme/cost/profile.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Profile> profile = parse_profile(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(profile)) return 0;
  fuzz::expect_text_form(profile.value(), parse_profile);
  TRIREME_CHECK(parse_profile(to_text(profile.value())).value() == profile.value(),
                "a profile has changed");
  for (const BlockProfile& block : profile.value().blocks) {
    const std::optional<double> seconds = seconds_at(block, BlockPass::kForward, 3);
    TRIREME_CHECK(seconds.value_or(0) >= 0, "a time is negative");
  }
  return 0;
}
