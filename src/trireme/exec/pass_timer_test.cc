#include "trireme/exec/pass_timer.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using enum ActionKind;
using std::chrono::milliseconds;

// Forwards take 1 ms at first and 2 ms in the end, all else takes 3 ms.
class TickingKernels : public Kernels {
 public:
  Status compute(const Action& action) override {
    now += milliseconds(action.kind != kForward ? 3 : action.index < 2 ? 1 : 2);
    return action.kind == kUpdate ? Status(Error{"no weights"}) : Status();
  }
  Result<Message> message(const Action& /*action*/) override { return Error{"no memory"}; }
  Status complete(const Action& /*action*/) override { return Error{"nothing came"}; }

  PassTimer::Time now;
};

TEST(PassTimer, TellsTheMeanOfThePassesOfAKindSinceItWasAsked) {
  TickingKernels kernels;
  PassTimer timer(kernels, [&kernels] { return kernels.now; });
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(timer.compute({kForward, i}).ok());
    EXPECT_TRUE(timer.compute({kBackward, i}).ok());
  }
  EXPECT_DOUBLE_EQ(timer.take_mean(kForward), 1.5e-3);
  EXPECT_EQ(timer.take_mean(kForward), 0);
  EXPECT_TRUE(timer.compute({kForward, 2}).ok());
  EXPECT_DOUBLE_EQ(timer.take_mean(kForward), 2e-3);
  EXPECT_DOUBLE_EQ(timer.take_mean(kBackward), 3e-3);
}

TEST(PassTimer, PassesOnWhatTheKernelsSay) {
  TickingKernels kernels;
  PassTimer timer(kernels);
  EXPECT_EQ(timer.compute({kUpdate}).error().message, "no weights");
  EXPECT_EQ(timer.message({kSendActivation}).error().message, "no memory");
  EXPECT_EQ(timer.complete({kSendActivation}).error().message, "nothing came");
}

}  // namespace
}  // namespace trireme
