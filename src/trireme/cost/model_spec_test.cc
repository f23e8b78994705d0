#include "trireme/cost/model_spec.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ModelSpec, ItsTextIsReadBack) {
  const std::string text = "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257";
  const Result<ModelSpec> spec = parse_model_spec(text);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec.value(), (ModelSpec{96, 12288, 96, 2048, 50257}));
  EXPECT_EQ(to_text(spec.value()), text);
  EXPECT_EQ(parse_model_spec("gpt:vocab=50257,seq=2048,heads=96,hidden=12288,layers=96").value(),
            spec.value());
}

TEST(ModelSpec, CountsTheParametersOfPublishedModels) {
  // GPT-2: 124,439,808 (Hugging Face's gpt2); GPT-3: "175B" (arXiv 2005.14165, table 2.1).
  EXPECT_EQ(num_parameters({12, 768, 12, 1024, 50257}), 124439808);
  EXPECT_NEAR(static_cast<double>(num_parameters({96, 12288, 96, 2048, 50257})), 175e9, 0.5e9);
}

TEST(ModelSpec, RefusesWhatIsNoModelInOneSentence) {
  const auto refusal = [](std::string_view text) {
    const Result<ModelSpec> spec = parse_model_spec(text);
    return spec.ok() ? "accepted" : spec.error().message;
  };
  const std::string example = "a model is gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257";
  EXPECT_EQ(refusal("bert:layers=1"),
            "\"bert:layers=1\" is no model of a known family; " + example);
  EXPECT_EQ(refusal("gpt:"), "\"\" is no size of a model; " + example);
  EXPECT_EQ(refusal("gpt:layers"), "\"layers\" is no size of a model; " + example);
  EXPECT_EQ(refusal("gpt:width=3"), "\"width=3\" is no size of a model; " + example);
  EXPECT_EQ(refusal("gpt:layers=two"), "layers of a model is \"two\", not 1 to 16384");
  EXPECT_EQ(refusal("gpt:layers=99999999999999999999"),
            "layers of a model is \"99999999999999999999\", not 1 to 16384");
  EXPECT_LT(refusal("gpt:" + std::string(9999, 'x')).size(), 300u);
  EXPECT_EQ(refusal("gpt:layers=2,layers=2"), "layers of a model is given twice");
  EXPECT_EQ(refusal("gpt:layers=2,hidden=8,heads=2,seq=4"), "vocab is missing; " + example);
  EXPECT_EQ(refusal("gpt:layers=0,hidden=8,heads=2,seq=4,vocab=9"),
            "layers of a model is 0, not 1 to 16384");
  EXPECT_EQ(refusal("gpt:layers=2,hidden=8,heads=3,seq=4,vocab=9"),
            "3 heads do not divide hidden=8");
}

}  // namespace
}  // namespace trireme
