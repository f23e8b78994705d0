// The lines that rank 0 publishes, as a person gets to see them.

#include <chrono>

#include "trireme/exec/progress.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::text_of(data, size);
  Progress terminal(ProgressStyle::kTerminal, 40);
  Progress lines(ProgressStyle::kLines, 0);
  Progress::TimePoint now{};
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    for (Progress* const each : {&terminal, &lines}) {
      static_cast<void>(each->show(text.substr(0, end), now));
    }
    now += std::chrono::milliseconds(700);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  static_cast<void>(terminal.end() + lines.end());
  return 0;
}
