#include "trireme/cli/last_sentence.h"

#include <cstdlib>

#include <signal.h>
#include <sys/resource.h>

#include <gtest/gtest.h>

namespace trireme {
namespace {

void abort_in(rlim_t address_space) {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);
  end_with_a_sentence("program");
  const rlimit limit{.rlim_cur = address_space, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
  std::abort();
}

TEST(LastSentence, SaysWhyTheLibraryAbortsWithoutMemory) {
  EXPECT_EXIT(abort_in(1 << 20), testing::ExitedWithCode(1), "program: there is no memory left; ");
}

TEST(LastSentence, LeavesOtherAbortsAsTheyAre) {
  EXPECT_EXIT(abort_in(rlim_t{1} << 62), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(abort_in(RLIM_INFINITY), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace trireme
