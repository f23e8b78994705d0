// Rules about the order of compute actions and transfers.
#include <map>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify_rules.h"

namespace trireme {
namespace {

using enum ActionKind;

std::string micro_batch_text(const ScheduleIndex& index, const Action& action) {
  return index.schedule().num_chunks == 1
             ? fmt::format("micro-batch {}", action.index)
             : fmt::format("micro-batch {}, chunk {}", action.index, action.chunk);
}

int32_t count_kind(const ScheduleIndex& index, int32_t rank, ActionKind kind) {
  int32_t count = 0;
  for (const Action& action : index.actions(rank)) count += action.kind == kind ? 1 : 0;
  return count;
}

// Calls check(rank, micro-batch, chunk) for all, until one fails.
template <typename Check>
Status for_each_micro_batch(const ScheduleIndex& index, Check check) {
  for (int32_t rank = 0; rank < index.num_ranks(); ++rank) {
    for (int32_t micro_batch = 0; micro_batch < index.num_micro_batches(rank); ++micro_batch) {
      for (int32_t chunk = 0; chunk < index.schedule().num_chunks; ++chunk) {
        TRIREME_TRY(check(rank, micro_batch, chunk));
      }
    }
  }
  return Status();
}

// Each `needed` action of the ranks' micro-batches is listed, and before `after`.
Status check_received(const ScheduleIndex& index, ActionKind needed, ActionKind after) {
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    const Action receive{needed, micro_batch, chunk};
    const Action compute{after, micro_batch, chunk};
    if (!counterpart(index.schedule(), rank, receive)) return Status();
    const int32_t received = index.position(rank, receive);
    if (received >= 0 && received < index.position(rank, compute)) return Status();
    return Status(Error{fmt::format("rank {} runs {} without {} before it", rank, to_text(compute),
                                    to_text(receive))});
  });
}

Status check_sent(const ScheduleIndex& index, ActionKind send_kind, ActionKind before) {
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    const Action send{send_kind, micro_batch, chunk};
    const Action compute{before, micro_batch, chunk};
    const int32_t sent = index.position(rank, send);
    if (sent < 0 || sent > index.position(rank, compute)) return Status();
    return Status(Error{fmt::format("rank {} runs {} before {} has made its data", rank,
                                    to_text(send), to_text(compute))});
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

Status check_forwards(const ScheduleIndex& index) {
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    const Action forward{kForward, micro_batch, chunk};
    if (index.position(rank, forward) >= 0) return Status();
    return Status(
        Error{fmt::format("rank {} misses the forward of {} ({} of {} forwards seen)", rank,
                          micro_batch_text(index, forward), count_kind(index, rank, kForward),
                          index.num_micro_batches(rank) * index.schedule().num_chunks)});
  });
}

Status check_backwards(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    const Action backward{kBackward, micro_batch, chunk};
    if (index.position(rank, backward) >= 0) return Status();
    return Status(
        Error{fmt::format("rank {} misses the backward of {} ({} of {} forwards seen)", rank,
                          micro_batch_text(index, backward), count_kind(index, rank, kForward),
                          index.num_micro_batches(rank) * index.schedule().num_chunks)});
  });
}

Status check_forward_before_backward(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return for_each_micro_batch(index, [&](int32_t rank, int32_t micro_batch, int32_t chunk) {
    const Action forward{kForward, micro_batch, chunk};
    const Action backward{kBackward, micro_batch, chunk};
    if (index.position(rank, forward) < index.position(rank, backward)) return Status();
    return Status(
        Error{fmt::format("rank {} runs {} before {}", rank, to_text(backward), to_text(forward))});
  });
}

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
  return check_received(index, kReceiveActivation, kForward);
}

Status check_send_after_forward(const ScheduleIndex& index) {
  return check_sent(index, kSendActivation, kForward);
}

Status check_receive_before_backward(const ScheduleIndex& index) {
  if (!index.schedule().is_training) return Status();
  return check_received(index, kReceiveGradient, kBackward);
}

Status check_send_after_backward(const ScheduleIndex& index) {
  return check_sent(index, kSendGradient, kBackward);
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
