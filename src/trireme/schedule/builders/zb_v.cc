// ZB-V (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6, and Pipeline Parallelism
// with Controllable Memory, 2024): two chunks a rank, placed as a V, so that the first rank has the
// first and the last virtual stage, and backwards begin where forwards end. B is split into I and
// W, and W fills what would be idle.
//
// The order is the best, for the costs of F, I and W, of those of list scheduling and of the one
// that has no bubble with F = I = W: rank s runs, where F0 is a forward in chunk 0, and so on,
//
//   2 (S-s) - 1 times F0, s times F1 F0, S-s times F1 I1 W1,
//   F0 I0 W0 F1 I1 W1 until no F1 is left, s times I0 I1, S-s times I0 W0, and the W that are left.
//
// Where no limit is given, a rank has at most 2 S chunks in flight, as much memory as 1F1B.
//
// 2 stages, 4 micro-batches:
//
//   rank 0 | F0   F1   F2   F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 F3   I0   W0   F2.1 I2.1 W2.1 I1   ...
//   rank 1 | .    F0   F0.1 F1   F1.1 I0.1 W0.1 F2   I0   W0   F2.1 I1.1 W1.1 F3   I1   W1   ...
#include <algorithm>
#include <array>

#include "trireme/schedule/builders/list_scheduling.h"
#include "trireme/schedule/builders/orders.h"

namespace trireme {
namespace {

using enum ActionKind;

// Writes a rank's order: each pass takes the next micro-batch of its chunk.
class Writer {
 public:
  void forward(int32_t chunk) { order_.push_back({kForward, num_forwards_[chunk]++, chunk}); }
  void input_gradient(int32_t chunk) {
    order_.push_back({kInputGradient, num_input_gradients_[chunk]++, chunk});
  }
  void weight_gradient(int32_t chunk) {
    order_.push_back({kWeightGradient, num_weight_gradients_[chunk]++, chunk});
  }
  [[nodiscard]] int32_t num_forwards(int32_t chunk) const { return num_forwards_[chunk]; }
  std::vector<Action> finish() {
    for (const int32_t chunk : {1, 0}) {
      while (num_weight_gradients_[chunk] < num_input_gradients_[chunk]) weight_gradient(chunk);
    }
    return std::move(order_);
  }

 private:
  std::array<int32_t, 2> num_forwards_ = {};
  std::array<int32_t, 2> num_input_gradients_ = {};
  std::array<int32_t, 2> num_weight_gradients_ = {};
  std::vector<Action> order_;
};

std::vector<Action> even_order(int32_t stage, int32_t num_stages, int32_t num_micro_batches) {
  Writer writer;
  const int32_t rest = num_stages - stage;
  for (int32_t i = 0; i < 2 * rest - 1; ++i) writer.forward(0);
  for (int32_t i = 0; i < stage; ++i) {
    writer.forward(1);
    writer.forward(0);
  }
  for (int32_t i = 0; i < rest; ++i) {
    writer.forward(1);
    writer.input_gradient(1);
    writer.weight_gradient(1);
  }
  while (writer.num_forwards(1) < num_micro_batches) {
    if (writer.num_forwards(0) < num_micro_batches) writer.forward(0);
    writer.input_gradient(0);
    writer.weight_gradient(0);
    writer.forward(1);
    writer.input_gradient(1);
    writer.weight_gradient(1);
  }
  for (int32_t i = 0; i < stage; ++i) {
    writer.input_gradient(0);
    writer.input_gradient(1);
  }
  for (int32_t i = 0; i < rest; ++i) {
    writer.input_gradient(0);
    writer.weight_gradient(0);
  }
  return writer.finish();
}

}  // namespace

Result<ComputeOrders> zb_v_orders(const OrderRequest& request) {
  TRIREME_TRY(const int32_t limit, in_flight_limit(request, 2 * request.num_stages));
  // Fewer micro-batches than the order is for take it and leave the others out.
  const int32_t count = std::max(request.num_micro_batches, 2 * request.num_stages - 1);
  ComputeOrders even;
  for (int32_t stage = 0; stage < request.num_stages; ++stage) {
    even.push_back(even_order(stage, request.num_stages, count));
  }
  even = first_micro_batches(std::move(even), request.num_micro_batches);
  return best_orders(request, limit, {std::move(even)});
}

}  // namespace trireme
