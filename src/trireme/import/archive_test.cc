#include "trireme/import/archive.h"

#include <set>

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
        "bert", "t5", "llama", "llama_causal", "mixtral_custom", "tricky"}) {
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

TEST(Archive, ReadsOperatorsOfOtherNameSpaces) {
  const Archive archive = Archive::open(zoo("mixtral_custom")).value();
  std::set<std::string_view> names;
  for (const Node& node : archive.graph().nodes) {
    if (!is_aten(node.op)) names.insert(node.op);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"transformers.grouped_mm_fallback.default"}));
}

}  // namespace
}  // namespace trireme
