#include "trireme/import/archive.h"

#include <gtest/gtest.h>

#include "trireme/graph/op_rules.h"

namespace trireme {
namespace {

std::string zoo(std::string_view name) {
  return std::string(TRIREME_TEST_DATA) + "/zoo/" + std::string(name) + ".pt2";
}

TEST(Archive, ReadsEveryGraphOfTheZooAndItsTextFormIsInvertible) {
  for (const std::string_view name :
       {"mlp", "nanogpt", "nanogpt_seq", "nanogpt_dropout", "nanogpt_autocast", "resnet", "gpt2",
        "bert", "t5", "llama", "llama_causal", "tricky"}) {
    const Result<Archive> archive = Archive::open(zoo(name));
    ASSERT_TRUE(archive.ok()) << archive.error().message;
    const Graph& graph = archive.value().graph();
    const Result<Graph> again = parse_graph(to_text(graph));
    ASSERT_TRUE(again.ok()) << name << ": " << again.error().message;
    EXPECT_EQ(to_text(again.value()), to_text(graph)) << name;
    EXPECT_TRUE(batch_symbol(graph).has_value()) << name;
  }
}

TEST(Archive, MergesTiedParameters) {
  const Archive archive = Archive::open(zoo("t5")).value();
  std::vector<size_t> ties;
  for (const GraphInput& input : archive.graph().inputs) {
    if (input.names.size() > 1) ties.push_back(input.names.size());
  }
  EXPECT_EQ(ties, (std::vector<size_t>{4}));
}

TEST(Archive, RefusesAnOperatorThatExistsOnlyInPython) {
  const Result<Archive> archive = Archive::open(zoo("mixtral_custom"));
  ASSERT_FALSE(archive.ok());
  EXPECT_EQ(
      archive.error().message,
      zoo("mixtral_custom") +
          ": node grouped_mm_fallback (torch.ops.transformers.grouped_mm_fallback.default) of "
          "module 'model.model.layers.0.mlp.experts': transformers.grouped_mm_fallback is not "
          "an aten operator and exists only in Python; call "
          "model.set_experts_implementation(\"batched_mm\") before the export");
}

}  // namespace
}  // namespace trireme
