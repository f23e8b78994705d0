#include "trireme/cli/last_sentence.h"

#include <cstdint>
#include <cstdlib>

#include <signal.h>
#include <sys/resource.h>

#include <gtest/gtest.h>

namespace trireme {
namespace {

enum class Fault : uint8_t { kAbort, kSegment };

void end_in(rlim_t address_space, Fault fault) {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);
  end_with_a_sentence("program");
  const rlimit limit{.rlim_cur = address_space, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
  if (fault == Fault::kAbort) std::abort();
  // As an instruction that is run again does.
  while (true) ::raise(SIGSEGV);
}

TEST(LastSentence, SaysWhyTheLibraryAbortsWithoutMemory) {
  EXPECT_EXIT(end_in(1 << 20, Fault::kAbort), testing::ExitedWithCode(1),
              "program: there is no memory left; ");
}

TEST(LastSentence, SaysWhyALibraryFaultsWithoutMemory) {
  EXPECT_EXIT(end_in(1 << 20, Fault::kSegment), testing::ExitedWithCode(1),
              "^program: there is no memory left; [^\n]*\n$");
}

TEST(LastSentence, LeavesOtherAbortsAsTheyAre) {
  EXPECT_EXIT(end_in(rlim_t{1} << 62, Fault::kAbort), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(end_in(RLIM_INFINITY, Fault::kAbort), testing::KilledBySignal(SIGABRT), "");
}

TEST(LastSentence, LeavesOtherFaultsAsTheyAre) {
  EXPECT_DEATH(end_in(RLIM_INFINITY, Fault::kSegment), "");
}

}  // namespace
}  // namespace trireme
