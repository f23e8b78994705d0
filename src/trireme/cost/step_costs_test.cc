#include "trireme/cost/step_costs.h"

#include <gtest/gtest.h>

#include "trireme/cost/layer_costs.h"

namespace trireme {
namespace {

TEST(StepLayers, OfBucketsAreALayerEachTheLastOneFirst) {
  StepCosts costs;
  costs.stages.resize(2);
  costs.stages[0].chunks.assign(2, {.forward = 30, .backward = 60});
  costs.stages[0].bucket_bytes = {100, 200, 300};
  costs.stages[1].chunks.assign(1, {.forward = 40, .backward = 50});
  const StepLayers layers = step_layers_of_buckets(costs);
  const std::vector<LayerCosts> chunk = {{.forward = 10, .backward = 20, .gradient_bytes = 150},
                                         {.forward = 10, .backward = 20, .gradient_bytes = 100},
                                         {.forward = 10, .backward = 20, .gradient_bytes = 50}};
  EXPECT_EQ(layers[0], std::vector<std::vector<LayerCosts>>({chunk, chunk}));
  EXPECT_EQ(layers[1], std::vector<std::vector<LayerCosts>>(
                           {{{.forward = 40, .backward = 50, .gradient_bytes = 0}}}));
}

TEST(StepCosts, ItsTextReadsBack) {
  StepCosts costs;
  costs.stages.resize(2);
  int64_t next = 1;
  for (StageCosts& stage : costs.stages) {
    stage.chunks = {{.forward = next++,
                     .backward = next++,
                     .input_gradient = next++,
                     .weight_gradient = next++,
                     .recompute = next++,
                     .activation_bytes = next++,
                     .gradient_bytes = next++,
                     .kept_bytes = next++,
                     .kept_input_bytes = next++,
                     .deferred_bytes = next++,
                     .transient_bytes = next++,
                     .forward_peak_bytes = next++,
                     .backward_peak_bytes = next++,
                     .split_peak_bytes = next++,
                     .bucket_final = {next++, next++}}};
    stage.update = next++;
    stage.bucket_bytes = {next++, next++};
    stage.rows = {.id_bytes = next++, .table_bytes = {next++, next++}};
    stage.static_bytes = next++;
  }
  costs.tied_bytes = {next++};
  costs.scalar_bytes = next++;
  const Result<StepCosts> back = parse_step_costs(to_text(costs));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value(), costs);
}

TEST(StepCosts, WhatIsWrongIsNamed) {
  const auto refusal = [](const std::string& text) {
    const Result<StepCosts> costs = parse_step_costs(text);
    return costs.ok() ? std::string("accepted") : costs.error().message;
  };
  const std::string format = "format: trireme-step-costs-1\n";
  EXPECT_EQ(refusal("a: 1"), "line 1: the list of step costs has no key \"a\"");
  EXPECT_EQ(refusal("format: trireme-plan-1"), "line 1: the format is not trireme-step-costs-1");
  EXPECT_EQ(refusal(format), "line 1: the list of step costs has no 'stages'");
  EXPECT_EQ(refusal(format + "stages: []"), "line 2: stages has 0 entries, not 1 to 65536");
  EXPECT_EQ(refusal(format + "stages: [{update_ns: 3}]"), "line 2: a stage has no 'chunks'");
  EXPECT_EQ(refusal(format + "stages:\n- chunks:\n  - forward_ns: -3"),
            "line 4: forward_ns is -3, not 0 to 4398046511104");
  EXPECT_EQ(refusal(format + "stages:\n- chunks:\n  - final_ns: [0, -1]"),
            "line 4: final_ns is -1, not 0 to 4398046511104");
  EXPECT_EQ(refusal(format + "stages:\n- chunks:\n  - forwards_ns: 3"),
            "line 4: a chunk has no key \"forwards_ns\"");
  EXPECT_EQ(refusal(format + "stages:\n- chunks:\n  - forward_ns: x"),
            "line 4: the value is of another kind than expected");
}

}  // namespace
}  // namespace trireme
