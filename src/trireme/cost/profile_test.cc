#include "trireme/cost/profile.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr const char* kText = R"(format: trireme-profile-1
model: mlp.pt2
num_nodes: 5
device: one core
blocks:
  - first_node: linear
    first_module: layers.0
    update: {seconds: 0.5, spread: 0, from: analytic}
    sizes:
      - {micro_batch: 2, forward: {seconds: 0.001, spread: 1e-05, from: measured}, kept_bytes: {bytes: 64, from: measured}}
      - {micro_batch: 6, forward: {seconds: 0.002, spread: 1e-05, from: measured}, backward: {seconds: 0.004, spread: 0, from: analytic}, input_gradient: {seconds: 0.002, spread: 0, from: analytic}, weight_gradient: {seconds: 0.002, spread: 0, from: analytic}, recompute: {seconds: 0.001, spread: 0, from: analytic}}
  - first_node: relu
    first_module: ""
    sizes:
      []
)";

std::string refusal(const std::string& text) {
  const Result<Profile> profile = parse_profile(text);
  return profile.ok() ? "accepted" : profile.error().message;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

TEST(Profile, IsReadAndWritten) {
  const Profile profile = parse_profile(kText).value();
  EXPECT_EQ(to_text(profile), kText);
  EXPECT_EQ(profile.blocks[0].sizes[1].passes[1]->source, CostSource::kAnalytic);
  EXPECT_EQ(parse_profile(to_text(profile)).value(), profile);
}

TEST(Profile, RefusesWhatItCannotUseByLineOrBlock) {
  EXPECT_EQ(refusal("[]"), "line 1: the profile is no map of keys");
  EXPECT_EQ(refusal(replaced(kText, "profile-1", "plan-1")),
            "line 1: the format is not trireme-profile-1");
  EXPECT_EQ(refusal("\xff"), "it is not UTF-8 text");
  EXPECT_EQ(refusal(replaced(kText, "num_nodes: 5", "nodes: 5")),
            "line 3: the profile has no key \"nodes\"");
  EXPECT_EQ(refusal(replaced(kText, "micro_batch: 2, ", "")),
            "line 10: a size has no 'micro_batch'");
  EXPECT_EQ(refusal(replaced(kText, "micro_batch: 2", "micro_batch: few")),
            "line 10: the value is of another kind than expected");
  EXPECT_EQ(refusal(replaced(kText, "from: analytic", "from: dreams")),
            "line 8: \"dreams\" is neither measured nor analytic");
  EXPECT_EQ(refusal(replaced(kText, "micro_batch: 6", "micro_batch: 2")),
            "block \"linear\": micro_batch 2 after 2; the sizes are to ascend from 1");
  EXPECT_EQ(refusal(replaced(kText, "seconds: 0.002", "seconds: -1")),
            "block \"linear\": forward takes -1 s, not 0 to 1e+09");
  EXPECT_EQ(refusal(replaced(kText, "seconds: 0.5", "seconds: .nan")),
            "block \"linear\": update takes nan s, not 0 to 1e+09");
  EXPECT_EQ(refusal(replaced(kText, "bytes: 64", "bytes: -64")),
            "block \"linear\": kept_bytes is -64, not 0 to 2^60");
  EXPECT_EQ(refusal(replaced(kText, "first_node: relu", "first_node: linear")),
            "block \"linear\" is there twice");
  EXPECT_EQ(refusal(replaced(kText, "first_node: relu", "first_node: \"\\0relu\"")),
            R"(line 12: "\x00relu" has a control character)");
  EXPECT_EQ(refusal(replaced(kText, "first_node: relu", "first_node: \"\\Nrelu\"")),
            "line 12: a string is not UTF-8 text");
}

TEST(Profile, InterpolatesBetweenSizesAndGoesOnBeyondThem) {
  const BlockProfile block = parse_profile(kText).value().blocks[0];
  EXPECT_DOUBLE_EQ(*seconds_at(block, BlockPass::kForward, 2), 0.001);
  EXPECT_DOUBLE_EQ(*seconds_at(block, BlockPass::kForward, 4), 0.0015);
  EXPECT_DOUBLE_EQ(*seconds_at(block, BlockPass::kForward, 10), 0.003);
  EXPECT_DOUBLE_EQ(*seconds_at(block, BlockPass::kForward, 1), 0.00075);
  // One size: in proportion.
  EXPECT_DOUBLE_EQ(*seconds_at(block, BlockPass::kBackward, 3), 0.002);
  EXPECT_DOUBLE_EQ(*kept_bytes_at(block, 3), 96);
  EXPECT_FALSE(seconds_at(BlockProfile(), BlockPass::kForward, 1).has_value());
}

TEST(Profile, NeverGoesBelowZero) {
  BlockProfile block;
  const PassSeconds one = {.seconds = 1};
  const PassSeconds nine = {.seconds = 9};
  block.sizes = {{.micro_batch = 10, .passes = {one}}, {.micro_batch = 12, .passes = {nine}}};
  EXPECT_EQ(*seconds_at(block, BlockPass::kForward, 1), 0);
}

TEST(Profile, TakesFromAnotherOnlyWhatItDoesNotKnow) {
  const Profile measured = parse_profile(kText).value();
  Profile analytic = measured;
  const PassSeconds other = {.seconds = 7, .source = CostSource::kAnalytic};
  analytic.blocks[0].sizes = {{.micro_batch = 4,
                               .passes = {other, other, other, other, other},
                               .kept_bytes = KeptBytes{.bytes = 7, .source = other.source}}};
  analytic.blocks[1].sizes = analytic.blocks[0].sizes;
  analytic.blocks[1].update = other;
  const Profile filled = fill_profile(measured, analytic).value();
  ASSERT_EQ(filled.blocks[0].sizes.size(), 3U);
  EXPECT_EQ(filled.blocks[0].update, measured.blocks[0].update);
  EXPECT_DOUBLE_EQ(*seconds_at(filled.blocks[0], BlockPass::kForward, 4), 0.0015);
  EXPECT_DOUBLE_EQ(*seconds_at(filled.blocks[1], BlockPass::kForward, 4), 7);
  EXPECT_DOUBLE_EQ(*kept_bytes_at(filled.blocks[0], 3), 96);
  EXPECT_EQ(filled.blocks[1].update, other);
}

TEST(Profile, IsNotFilledFromAnotherModel) {
  const Profile measured = parse_profile(kText).value();
  Profile other = measured;
  other.blocks[1].first_node = "gelu";
  EXPECT_EQ(fill_profile(measured, other).error().message,
            "block 1 of the profile begins with \"relu\", and of the model with \"gelu\"; make it "
            "again");
  other.blocks.pop_back();
  EXPECT_EQ(fill_profile(measured, other).error().message,
            "the profile has 2 blocks and the model 1; make it again");
  other.num_nodes = 6;
  EXPECT_EQ(fill_profile(measured, other).error().message,
            "the profile is of a model of 5 nodes, not of 6; make it again");
}

}  // namespace
}  // namespace trireme
