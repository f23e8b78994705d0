#include "trireme/graph/index_bounds.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Bounds = std::vector<std::optional<int64_t>>;

TEST(IndexBounds, AreTheRowsOfEmbeddingsAndTheClassesOfLossesAlsoBehindViews) {
  const Graph graph = parse_graph(R"(hint s0 = 2
parameter %w "wte.weight" f32[50,4] grad
parameter %v "wpe.weight" f32[40,4] grad
input %x "x" i64[s0,8]
input %y "y" i64[s0,8]
input %z "z" i64[s0,8]
%e = aten.embedding.default(weight=%w, indices=%x) -> f32[s0,8,4]
%s = aten.alias.default(self=%x) -> i64[s0,8]
%p = aten.embedding.default(weight=%v, indices=%s) -> f32[s0,8,4]
%h = aten.add.Tensor(self=%e, other=%p) -> f32[s0,8,4]
%f = aten.view.default(self=%h, size=[mul(s0,8), 4]) -> f32[mul(s0,8),4]
%t = aten.view.default(self=%y, size=[-1]) -> i64[mul(s0,8)]
%loss = aten.cross_entropy_loss.default(self=%f, target=%t) -> f32[]
return %loss
)")
                          .value();
  EXPECT_EQ(index_bounds(graph), (Bounds{{}, {}, 40, 4, {}}));
}

}  // namespace
}  // namespace trireme
