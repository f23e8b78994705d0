// DualPipe-V (DeepSeek-AI, DualPipe, 2025; the half of DualPipe of Qi et al., Cut in Half): two
// chunks a rank, placed as a V. In its steady part a forward of one chunk and a backward of the
// other follow each other, whose transfers and computing can hide each other. It keeps 2 S + 1
// chunks in flight and wants 2 S micro-batches; fewer take the same order and leave the others out.
//
// Rank s runs, in this order (F0 is a forward in chunk 0, and so on):
//
//   2 (S-1-s) times F0, s+1 times F0 F1, S-1-s times I1 W1 F1,
//   m-2S+s+1 times F0 B1 F1 B0, S-1-s times B1 F1 B0,
//   s+1 times B1 B0, whose second half is split into I and W,
//   S-1-s times W I0, and the W that are left.
//
// 2 stages, 4 micro-batches:
//
//   rank 0 | F0   F1   F2   F0.1 I0.1 W0.1 F1.1 F3   B1.1 --   F2.1 B0   --   B2.1 --   F3.1 ...
//   rank 1 | .    F0   F0.1 F1   F1.1 F2   B0.1 --   F2.1 B0   --   F3   B1.1 --   F3.1 B1   ...
#include <algorithm>
#include <array>
#include <deque>

#include "trireme/schedule/builders/orders.h"

namespace trireme {
namespace {

using enum ActionKind;

// Writes a rank's order: each pass takes the next micro-batch of its chunk.
class Writer {
 public:
  void forward(int32_t chunk) { order_.push_back({kForward, num_forwards_[chunk]++, chunk}); }
  void backward(int32_t chunk, bool is_split) {
    const Action action{is_split ? kInputGradient : kBackward, num_backwards_[chunk]++, chunk};
    order_.push_back(action);
    if (is_split) deferred_.push_back({kWeightGradient, action.index, chunk});
  }
  void weight_gradient() {
    order_.push_back(deferred_.front());
    deferred_.pop_front();
  }
  std::vector<Action> finish() {
    while (!deferred_.empty()) weight_gradient();
    return std::move(order_);
  }

 private:
  std::array<int32_t, 2> num_forwards_ = {};
  std::array<int32_t, 2> num_backwards_ = {};
  std::deque<Action> deferred_;
  std::vector<Action> order_;
};

std::vector<Action> order_of(int32_t stage, int32_t num_stages, int32_t num_micro_batches) {
  Writer writer;
  const int32_t num_after = num_stages - 1 - stage;
  for (int32_t i = 0; i < 2 * num_after; ++i) writer.forward(0);
  for (int32_t i = 0; i <= stage; ++i) {
    writer.forward(0);
    writer.forward(1);
  }
  for (int32_t i = 0; i < num_after; ++i) {
    writer.backward(1, true);
    writer.weight_gradient();
    writer.forward(1);
  }
  for (int32_t i = 0; i < num_micro_batches - num_stages - num_after; ++i) {
    writer.forward(0);
    writer.backward(1, false);
    writer.forward(1);
    writer.backward(0, false);
  }
  for (int32_t i = 0; i < num_after; ++i) {
    writer.backward(1, false);
    writer.forward(1);
    writer.backward(0, false);
  }
  // Of 2 (s+1) backwards the last s+1 are split.
  for (int32_t i = 0; i < 2 * (stage + 1); ++i) writer.backward(1 - i % 2, i > stage);
  for (int32_t i = 0; i < num_after; ++i) {
    writer.weight_gradient();
    writer.backward(0, true);
  }
  return writer.finish();
}

}  // namespace

Result<ComputeOrders> dualpipe_v_orders(const OrderRequest& request) {
  const int32_t count = std::max(request.num_micro_batches, 2 * request.num_stages);
  ComputeOrders orders;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    orders.push_back(order_of(stage, request.num_stages, count));
  }
  return first_micro_batches(std::move(orders), request.num_micro_batches);
}

}  // namespace trireme
