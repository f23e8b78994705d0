// Agenda: what happens next in a simulation: appointments at a time, and ends of flows.
//
// Of what is at the same time flows end first, in the order of FluidNetwork; then come
// appointments, in the order in which they were made.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "trireme/base/sim_time.h"
#include "trireme/sim/fluid_network.h"

namespace trireme {

class Agenda {
 public:
  enum class Kind : uint8_t {
    kRank,             // it goes on
    kTransfer,         // its latency has passed
    kTransferEnd,      // its bytes are there
    kCollective,       // of a communicator: the latency of a phase has passed
    kCollectivePhase,  // of a communicator: the bytes of a phase are there
    kFinalSum,         // the gradients of a bucket are final
  };
  struct Entry {
    SimTime time = 0;
    Kind kind = Kind::kRank;
    int32_t id = 0;
  };

  // Bytes a second, greater than 0, by link.
  explicit Agenda(std::vector<double> bandwidths) : network_(std::move(bandwidths)) {}

  void add(const Entry& entry);
  // Bytes go over the links; when they are there, `end` happens, whose time does not count. The
  // path is not empty, and outlives the flow.
  void start_flow(SimTime now, const std::vector<LinkUse>& path, int64_t bytes, const Entry& end,
                  int32_t priority);
  // Takes what happens next. Nothing: all is over, or the end of simulated time has come.
  std::optional<Entry> take();

  // Whether there is what would happen after the end of simulated time.
  [[nodiscard]] bool is_too_long() { return is_too_long_ || network_.next().has_value(); }
  [[nodiscard]] int64_t num_taken() const { return num_taken_; }
  // Bytes that have passed the link so far.
  [[nodiscard]] double carried(int32_t link) const { return network_.carried(link); }

 private:
  struct Ordered {
    Entry entry;
    int64_t order = 0;
    bool operator>(const Ordered& other) const {
      return entry.time != other.entry.time ? entry.time > other.entry.time : order > other.order;
    }
  };

  FluidNetwork network_;
  std::vector<Entry> ends_;  // by flow
  std::vector<int32_t> free_flows_;
  std::priority_queue<Ordered, std::vector<Ordered>, std::greater<>> entries_;
  int64_t order_ = 0;
  int64_t num_taken_ = 0;
  bool is_too_long_ = false;
};

}  // namespace trireme
