#include "trireme/transport/link_meter.h"

#include <algorithm>
#include <utility>

namespace trireme {

void LinkMeter::look(std::span<const std::optional<SentCounts>> counts) {
  std::vector<Interval> passed(peers_.size());
  uint64_t all = 0;
  size_t num_busy = 0;
  for (size_t p = 0; p < peers_.size(); ++p) {
    const std::optional<SentCounts> before = std::exchange(peers_[p].last, counts[p]);
    if (!counts[p].has_value() || !before.has_value()) continue;
    passed[p] = {.num_bytes = counts[p]->confirmed_bytes - before->confirmed_bytes,
                 .busy_us = counts[p]->busy_us - before->busy_us};
    all += passed[p].num_bytes;
    if (passed[p].busy_us > 0) ++num_busy;
  }
  for (size_t p = 0; p < peers_.size(); ++p) {
    const double foreign = static_cast<double>(all - passed[p].num_bytes);
    // Where nothing has been confirmed, what is on its way is on its way longer.
    const bool is_alone = all > 0 ? foreign <= kForeignShare * static_cast<double>(all)
                                  : num_busy == 1 && passed[p].busy_us > 0;
    if (is_alone) gather(peers_[p], passed[p]);
  }
}

void LinkMeter::gather(Peer& peer, const Interval& more) {
  peer.gathered.num_bytes += more.num_bytes;
  peer.gathered.busy_us += more.busy_us;
  if (std::chrono::microseconds(peer.gathered.busy_us) < kLeastBusy) return;
  const Interval interval = std::exchange(peer.gathered, Interval());
  if (peer.intervals.size() < kMostIntervals) {
    peer.intervals.push_back(interval);
  } else {
    peer.intervals[peer.next] = interval;
    peer.next = (peer.next + 1) % kMostIntervals;
  }
}

std::optional<MeasuredLink> LinkMeter::take(size_t index) {
  Peer& peer = peers_[index];
  std::vector<Interval> intervals = std::exchange(peer.intervals, {});
  peer.next = 0;
  std::ranges::sort(intervals, {}, &Interval::bytes_per_s);
  uint64_t all = 0;
  for (const Interval& each : intervals) all += each.num_bytes;
  uint64_t slower = 0;
  for (const Interval& each : intervals) {
    slower += each.num_bytes;
    if (2 * slower < all || slower == 0) continue;
    return MeasuredLink{.bytes_per_s = each.bytes_per_s(),
                        .latency_s = 0.5e-6 * static_cast<double>(peer.last->least_round_trip_us)};
  }
  return std::nullopt;
}

}  // namespace trireme
