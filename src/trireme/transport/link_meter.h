// LinkMeter: how fast links take what this rank sends, from what the kernel counts of connections.
//
// The kernel knows how long bytes of a connection were on their way and which of them the peer has
// confirmed. A sender that has nothing to send and a receiver that has not posted take no part in
// it, nor does a rank that is slow to look. What lies between two looks counts where this rank has
// sent to one peer alone, but for kForeignShare: what shares a link is slower than the link. The
// kernel counts time in ticks of up to 10 ms, so what counts is gathered into intervals of
// kLeastBusy.
//
// The measured rate is the median of the intervals, over their bytes. A peer that receives from
// another one over the same link at the same time makes an interval slower.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/exec/transport.h"
#include "trireme/transport/byte_channel.h"

namespace trireme {

class LinkMeter {
 public:
  static constexpr double kForeignShare = 0.02;
  static constexpr std::chrono::milliseconds kLeastBusy{40};

  explicit LinkMeter(size_t num_peers) : peers_(num_peers) {}

  // What the kernel has counted of each peer until now; nothing of one that no connection leads to.
  void look(std::span<const std::optional<SentCounts>> counts);
  // Of the looks since the last call of it; nothing where that is no interval.
  [[nodiscard]] std::optional<MeasuredLink> take(size_t peer);

 private:
  static constexpr size_t kMostIntervals = 1024;  // the newest

  struct Interval {
    uint64_t num_bytes = 0;
    uint64_t busy_us = 0;
    [[nodiscard]] double bytes_per_s() const {
      return 1e6 * static_cast<double>(num_bytes) / static_cast<double>(busy_us);
    }
  };
  struct Peer {
    std::optional<SentCounts> last;
    Interval gathered;
    std::vector<Interval> intervals;  // a ring where it is full
    size_t next = 0;
  };
  void gather(Peer& peer, const Interval& more);

  std::vector<Peer> peers_;
};

}  // namespace trireme
