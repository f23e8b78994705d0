#include <map>
#include <tuple>
#include <utility>

#include "trireme/schedule/builders/orders.h"
#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

using enum ActionKind;

// What travels with a pass: RA and SA with a forward, RG and SG with B or I.
bool travels(const Action& action) {
  return is_forward(action.kind) || takes_gradient(action.kind);
}
Action receive_of(const Action& pass) {
  return {is_forward(pass.kind) ? kReceiveActivation : kReceiveGradient, pass.index, pass.chunk,
          pass.batch};
}
Action send_of(const Action& pass) {
  return {is_forward(pass.kind) ? kSendActivation : kSendGradient, pass.index, pass.chunk,
          pass.batch};
}

// The messages of one sender, receiver and kind, in the order in which they are sent, and how many
// the receiver has received.
struct Channel {
  std::vector<Action> receives;
  size_t num_received = 0;
};

class Completer {
 public:
  Completer(const Schedule& schedule, const ComputeOrders& orders)
      : schedule_(schedule), orders_(orders) {
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      const auto sender = static_cast<int32_t>(rank);
      for (const Action& pass : orders[rank]) {
        if (!travels(pass)) continue;
        const auto other = counterpart(schedule_, sender, send_of(pass));
        if (!other) continue;
        std::vector<Action>& receives =
            channels_[{{sender, other->rank}, other->action.kind}].receives;
        places_[{other->rank, key(other->action)}] = receives.size();
        receives.push_back(other->action);
      }
    }
  }

  std::vector<Action> complete(int32_t rank) {
    std::vector<Action> actions;
    for (const Action& action : orders_[static_cast<size_t>(rank)]) {
      if (action.kind == kReceiveGradient) receive(rank, action, actions);
      if (travels(action)) receive(rank, receive_of(action), actions);
      if (action.kind != kReceiveGradient) actions.push_back(action);
      if (travels(action) && counterpart(schedule_, rank, send_of(action))) {
        actions.push_back(send_of(action));
      }
    }
    return actions;
  }

 private:
  using Key = std::tuple<ActionKind, int32_t, int64_t>;
  [[nodiscard]] Key key(const Action& action) const {
    return {action.kind, action.batch, int64_t{action.index} * schedule_.num_chunks + action.chunk};
  }

  // Receives a message, after those of its sender that come first: they have arrived before it, so
  // that waiting for them costs nothing, and transfers keep one order.
  void receive(int32_t rank, const Action& wanted, std::vector<Action>& actions) {
    const auto other = counterpart(schedule_, rank, wanted);
    if (!other) return;
    const auto place = places_.find({rank, key(wanted)});
    if (place == places_.end()) {
      actions.push_back(wanted);  // the step before has sent it, or nothing, as the verifier says
      return;
    }
    Channel& channel = channels_[{{other->rank, rank}, wanted.kind}];
    for (; channel.num_received <= place->second; ++channel.num_received) {
      actions.push_back(channel.receives[channel.num_received]);
    }
  }

  const Schedule& schedule_;
  const ComputeOrders& orders_;
  std::map<std::pair<std::pair<int32_t, int32_t>, ActionKind>, Channel> channels_;
  std::map<std::pair<int32_t, Key>, size_t> places_;  // of a receive in its channel
};

}  // namespace

Schedule with_transfers(const OrderRequest& request, const ComputeOrders& orders) {
  Schedule schedule{.builder = "order",
                    .num_stages = request.num_stages,
                    .num_chunks = request.num_chunks,
                    .placement = request.placement,
                    .num_micro_batches = {request.num_micro_batches}};
  Completer completer(schedule, orders);
  for (int32_t rank = 0; rank < request.num_stages; ++rank) {
    schedule.ranks.push_back(completer.complete(rank));
  }
  return schedule;
}

ComputeOrders first_micro_batches(ComputeOrders orders, int32_t num_micro_batches) {
  for (std::vector<Action>& order : orders) {
    std::erase_if(order, [&](const Action& action) { return action.index >= num_micro_batches; });
  }
  return orders;
}

}  // namespace trireme
