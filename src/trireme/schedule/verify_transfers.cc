// Rules about transfers: each has its other side, and stands where its data is.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

using enum ActionKind;

// What each transfer of a micro-batch goes with: the forward, or what takes the gradient.
Action compute_of(const ScheduleIndex& index, int32_t rank, const Action& transfer) {
  if (transfer.batch == 1) return {kForward, transfer.index, transfer.chunk, 1};
  return transfer.kind == kSendActivation || transfer.kind == kReceiveActivation
             ? index.forward(rank, transfer.index, transfer.chunk)
             : index.gradient_taker(rank, transfer.index, transfer.chunk);
}

// The receive is listed, and before what needs it.
Status check_received(const ScheduleIndex& index, int32_t rank, const Action& receive) {
  if (!counterpart(index.schedule(), rank, receive)) return Status();
  const Action compute = compute_of(index, rank, receive);
  const int32_t received = index.position(rank, receive);
  if (received >= 0 && received < index.position(rank, compute)) return Status();
  return Error{fmt::format("rank {} runs {} without {} before it", rank, to_text(compute),
                           to_text(receive))};
}

Status check_sent(const ScheduleIndex& index, int32_t rank, const Action& send) {
  const Action compute = compute_of(index, rank, send);
  const int32_t sent = index.position(rank, send);
  if (sent < 0 || sent > index.position(rank, compute)) return Status();
  return Error{fmt::format("rank {} runs {} before {} has made its data", rank, to_text(send),
                           to_text(compute))};
}

// Of activations, calls check(rank, transfer) for what the step does, of its own batch and of the
// next.
template <typename Check>
Status for_each_activation(const ScheduleIndex& index, ActionKind kind, Check check) {
  return for_each_micro_batch(index,
                              [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
                                if (micro_batch < index.num_ahead(rank)) {
                                  TRIREME_TRY(check(rank, Action{kind, micro_batch, chunk, 1}));
                                }
                                if (micro_batch < index.num_found(rank)) return Status();
                                return check(rank, Action{kind, micro_batch, chunk});
                              });
}

// Whether the other side is a matter of the step before, which has sent already, or of the next
// one, which will receive.
bool is_of_a_neighbour(const ScheduleIndex& index, const Counterpart& other) {
  const Action& action = other.action;
  if (action.kind == kSendActivation && action.batch == 0) {
    return action.index < index.num_found(other.rank);
  }
  return action.kind == kReceiveActivation && action.batch == 1 &&
         action.index >= index.num_ahead(other.rank);
}

// Transfers in the order of the list, by the rank at the other side.
std::map<int32_t, std::vector<Action>> transfers_by_peer(const ScheduleIndex& index, int32_t rank,
                                                         ActionKind kind) {
  std::map<int32_t, std::vector<Action>> transfers;
  for (const Action& action : index.actions(rank)) {
    if (action.kind != kind) continue;
    transfers[other_side(index.schedule(), rank, action).rank].push_back(action);
  }
  return transfers;
}

// The same of sends, after those that the step before has sent and this one receives.
std::map<int32_t, std::vector<Action>> sent_by_peer(const ScheduleIndex& index, int32_t rank,
                                                    ActionKind kind) {
  std::map<int32_t, std::vector<Action>> transfers = transfers_by_peer(index, rank, kind);
  const auto other = counterpart(index.schedule(), rank, {kind});
  if (kind != kSendActivation || !other || index.num_found(rank) == 0) return transfers;
  std::vector<Action>& sends = transfers[other->rank];
  const int32_t first = index.num_found(other->rank);
  for (int32_t i = index.num_found(rank); i-- > first;) sends.insert(sends.begin(), {kind, i});
  return transfers;
}

}  // namespace

Status check_transfers_match(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& action : index.actions(rank)) {
      const auto other = counterpart(index.schedule(), rank, action);
      if (!other || index.position(other->rank, other->action) >= 0 ||
          is_of_a_neighbour(index, *other)) {
        continue;
      }
      return Error{fmt::format("rank {} lists {}, but rank {} misses the matching {}", rank,
                               to_text(action), other->rank, to_text(other->action))};
    }
  }
  // What the next step receives has no match here.
  return for_each_activation(
      index, kSendActivation, [&](int32_t rank, const Action& send) -> Status {
        if (send.batch == 0 || !counterpart(index.schedule(), rank, send) ||
            index.position(rank, send) >= 0) {
          return Status();
        }
        return Error{
            fmt::format("rank {} misses {}, which the next step receives", rank, to_text(send))};
      });
}

Status check_receive_before_forward(const ScheduleIndex& index) {
  return for_each_activation(index, kReceiveActivation, [&](int32_t rank, const Action& receive) {
    return check_received(index, rank, receive);
  });
}

Status check_send_after_forward(const ScheduleIndex& index) {
  return for_each_activation(index, kSendActivation, [&](int32_t rank, const Action& send) {
    return check_sent(index, rank, send);
  });
}

Status check_receive_before_backward(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    return check_received(index, rank, {kReceiveGradient, micro_batch, chunk});
  });
}

Status check_send_after_backward(const ScheduleIndex& index) {
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    return check_sent(index, rank, {kSendGradient, micro_batch, chunk});
  });
}

Status check_transfer_order(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (ActionKind kind : {kSendActivation, kSendGradient}) {
      const ActionKind peer_kind = kind == kSendActivation ? kReceiveActivation : kReceiveGradient;
      for (const auto& [peer, sends] : sent_by_peer(index, rank, kind)) {
        const std::vector<Action> receives = transfers_by_peer(index, peer, peer_kind)[rank];
        for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
          if (other_side(index.schedule(), rank, sends[i]).action == receives[i]) continue;
          return Error{fmt::format("rank {} sends {} where rank {} expects {} (transfer {} of {})",
                                   rank, to_text(sends[i]), peer, to_text(receives[i]), i + 1,
                                   sends.size())};
        }
      }
    }
  }
  return Status();
}

}  // namespace trireme
