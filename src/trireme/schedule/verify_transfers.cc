// Rules about transfers: each has its other side, and stands where its data is.
#include <map>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

using enum ActionKind;

// What each transfer of a micro-batch goes with: the forward, or what takes the gradient.
Action compute_of(const ScheduleIndex& index, int32_t rank, const Action& transfer) {
  return transfer.kind == kSendActivation || transfer.kind == kReceiveActivation
             ? index.forward(rank, transfer.index, transfer.chunk)
             : index.gradient_taker(rank, transfer.index, transfer.chunk);
}

// The receives of this kind that are needed are listed, and before what needs them.
Status check_received(const ScheduleIndex& index, ActionKind kind) {
  return for_each_micro_batch(index,
                              [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
                                const Action receive{kind, micro_batch, chunk};
                                if (!counterpart(index.schedule(), rank, receive)) return Status();
                                const Action compute = compute_of(index, rank, receive);
                                const int32_t received = index.position(rank, receive);
                                if (received >= 0 && received < index.position(rank, compute))
                                  return Status();
                                return Error{fmt::format("rank {} runs {} without {} before it",
                                                         rank, to_text(compute), to_text(receive))};
                              });
}

Status check_sent(const ScheduleIndex& index, ActionKind kind) {
  return for_each_micro_batch(
      index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) -> Status {
        const Action send{kind, micro_batch, chunk};
        const Action compute = compute_of(index, rank, send);
        const int32_t sent = index.position(rank, send);
        if (sent < 0 || sent > index.position(rank, compute)) return Status();
        return Error{fmt::format("rank {} runs {} before {} has made its data", rank, to_text(send),
                                 to_text(compute))};
      });
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

}  // namespace

Status check_transfers_match(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (const Action& action : index.actions(rank)) {
      const auto other = counterpart(index.schedule(), rank, action);
      if (!other || index.position(other->rank, other->action) >= 0) continue;
      return Error{fmt::format("rank {} lists {}, but rank {} misses the matching {}", rank,
                               to_text(action), other->rank, to_text(other->action))};
    }
  }
  return Status();
}

Status check_receive_before_forward(const ScheduleIndex& index) {
  return check_received(index, kReceiveActivation);
}

Status check_send_after_forward(const ScheduleIndex& index) {
  return check_sent(index, kSendActivation);
}

Status check_receive_before_backward(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return check_received(index, kReceiveGradient);
}

Status check_send_after_backward(const ScheduleIndex& index) {
  return check_sent(index, kSendGradient);
}

Status check_transfer_order(const ScheduleIndex& index) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (ActionKind kind : {kSendActivation, kSendGradient}) {
      const ActionKind peer_kind = kind == kSendActivation ? kReceiveActivation : kReceiveGradient;
      for (const auto& [peer, sends] : transfers_by_peer(index, rank, kind)) {
        const std::vector<Action> receives = transfers_by_peer(index, peer, peer_kind)[rank];
        for (size_t i = 0; i < sends.size(); ++i) {
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
