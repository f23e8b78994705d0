#include "trireme/cli/result_text.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr const char* kEvalResult = R"({"event":"result","eval_loss":2.5,"items":40.0})";

TEST(ResultText, OfAnEvaluationIsALineForPeople) {
  EXPECT_EQ(result_text({.is_training = false}, kEvalResult), "eval loss 2.5 over 40 items\n");
}

TEST(ResultText, AsJsonIsTheObjectWithoutItsEvent) {
  EXPECT_EQ(result_text({.is_training = false, .wants_json = true}, kEvalResult),
            "{\"eval_loss\":2.5,\"items\":40.0}\n");
  EXPECT_EQ(result_text({.wants_json = true}, R"({"event":"result","steps":3,"loss":1.5})"),
            "{\"steps\":3,\"loss\":1.5}\n");
}

TEST(ResultText, LaysAPredictionBesideWhatWasMeasured) {
  EXPECT_EQ(result_text({}, R"({"event":"result","step_seconds":0.002,"peak_bytes":[20000,9000],)"
                            R"("predicted":{"step_seconds":0.0019,"peak_bytes":[20500,9000],)"
                            R"("notes":["passes: measured"]}})"),
            "                      predicted     measured       error\n"
            "  step                   1.9 ms         2 ms      -5.0 %\n"
            "  memory of rank 0      20.5 kB      20.0 kB      +2.5 %\n"
            "  memory of rank 1       9000 B       9000 B      +0.0 %\n"
            "  passes: measured\n");
}

TEST(ResultText, OfEverythingElseIsNothing) {
  EXPECT_EQ(result_text({}, R"({"event":"result","steps":3,"loss":1.5})"), "");
  for (const char* line : {R"({"event":"step","step":1})", "[1]", "3", "no JSON", ""}) {
    EXPECT_EQ(result_text({.is_training = false}, line), "") << line;
  }
}

}  // namespace
}  // namespace trireme
