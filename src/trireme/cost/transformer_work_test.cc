#include "trireme/cost/transformer_work.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr ModelSpec kSpec = {.layers = 4, .hidden = 64, .heads = 8, .seq = 32, .vocab = 1000};

double matmul_flops(const std::vector<OperatorWork>& works) {
  double sum = 0;
  for (const OperatorWork& work : works) sum += work.flops;
  return sum;
}

TEST(TransformerWork, FlopsOfAStepAreThoseOfThePublishedFormula) {
  // Narayanan et al., arXiv 2104.04473, equation 3 of its appendix: with all layers recomputed
  // F = 96 B s l h^2 (1 + s/(6h) + V/(16 l h)).
  const ShardedBatch batch = {.micro_batch = 3, .tp = 1};
  const double layer = 2 * matmul_flops(layer_forward_work(kSpec, batch)) +
                       matmul_flops(layer_backward_work(kSpec, batch));
  const double flops = 4 * layer + matmul_flops(head_work(kSpec, batch));
  const double h = 64;
  const double s = 32;
  const double vocab = 1024;  // padded
  EXPECT_DOUBLE_EQ(flops, 96 * 3 * s * 4 * h * h * (1 + s / (6 * h) + vocab / (16 * 4 * h)));
}

TEST(TransformerWork, DevicesThatShareALayerShareItsFlops) {
  for (const int64_t tp : {2, 4, 8}) {
    const ShardedBatch batch = {.micro_batch = 2, .tp = tp};
    const auto n = static_cast<double>(tp);
    EXPECT_DOUBLE_EQ(n * matmul_flops(layer_forward_work(kSpec, batch)),
                     matmul_flops(layer_forward_work(kSpec, {.micro_batch = 2})));
    EXPECT_DOUBLE_EQ(n * matmul_flops(layer_backward_work(kSpec, batch)),
                     matmul_flops(layer_backward_work(kSpec, {.micro_batch = 2})));
  }
}

TEST(TransformerWork, ScoresOfHeadsThatAreNoMultipleOfFourPassTheMemoryMoreOften) {
  const auto softmax = [](int64_t micro_batch) {
    for (const OperatorWork& work : layer_forward_work(kSpec, {micro_batch, 8})) {
      if (work.name == "softmax") return work;
    }
    return OperatorWork{};
  };
  const double scores = 32 * 32 * 2;  // of one head, in bytes
  EXPECT_EQ(softmax(4), (OperatorWork{.name = "softmax", .bytes = 2 * 4 * scores, .launches = 1}));
  EXPECT_EQ(softmax(3), (OperatorWork{.name = "softmax", .bytes = 8 * 3 * scores, .launches = 7}));
}

TEST(TransformerWork, TheVocabularyIsPaddedForTheDevicesThatShareIt) {
  EXPECT_EQ(padded_vocab({.vocab = 50257}, 1), 50304);
  EXPECT_EQ(padded_vocab({.vocab = 50257}, 8), 51200);
  EXPECT_EQ(padded_vocab({.vocab = 51200}, 8), 51200);
}

}  // namespace
}  // namespace trireme
