// FluidNetwork: transfers as flows of a fluid that share links, in virtual time.
//
// Rates are max-min fair: no flow can get more without taking it from one that has no more
// (Bertsekas and Gallager, Data Networks, 6.5.2, progressive filling). A flow of a higher priority
// takes what it can get before those below share what is left. A path may use a link with a weight:
// a ring all-reduce is one flow over all links of the ring.
//
// Only flows that meet on a link that could be full affect each other, so a change is worked out
// for those alone: on a network that is wide enough a flow costs the length of its path.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "trireme/base/sim_time.h"

namespace trireme {

struct LinkUse {
  int32_t link = 0;
  double weight = 1;  // bytes on the link for each byte of the flow
  bool operator==(const LinkUse&) const = default;
};

class FluidNetwork {
 public:
  // Bytes a second, greater than 0, by link.
  explicit FluidNetwork(std::vector<double> capacities);

  // A flow of `bytes`, with an id that was free; time never goes back. The path is not empty, names
  // no link twice, and outlives the flow.
  void start(SimTime now, int32_t flow, std::span<const LinkUse> path, double bytes,
             int32_t priority = 0);

  struct Completion {
    SimTime time = 0;
    int32_t flow = 0;
  };
  // The next flow to end, if nothing starts before; of several at a time the one that was known
  // first. 9e18 ns: never.
  [[nodiscard]] std::optional<Completion> next();
  // Ends that flow. REQUIRES: next() has a value.
  Completion pop();

  // Bytes a second, now.
  [[nodiscard]] double rate(int32_t flow) const { return flows_[flow].rate; }
  // Bytes that have passed the link so far.
  [[nodiscard]] double carried(int32_t link) const { return links_[link].carried; }

 private:
  struct Flow {
    std::span<const LinkUse> path;
    double bound = 0;      // the rate if it were alone
    double rate = 0;       // bytes a second
    double new_rate = 0;   // while rates are worked out
    double remaining = 0;  // bytes, at `since`
    SimTime since = 0;
    int32_t priority = 0;
    int32_t version = 0;  // of its place in the queue
    int32_t mark = 0;
    bool is_fixed = false;
  };
  struct Link {
    double capacity = 0;
    double wanted = 0;  // by all of its flows, each alone
    double carried = 0;
    double left = 0;    // while rates are worked out
    double weight = 0;  // of the flows whose rates are not fixed yet
    int32_t mark = 0;
    std::vector<int32_t> flows;
  };
  struct Entry {
    SimTime time;
    int64_t order;
    int32_t flow;
    int32_t version;
    bool operator>(const Entry& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  [[nodiscard]] bool could_be_full(const Link& link) const;
  // The flows that a change of this one may affect, itself first.
  void collect(int32_t flow);
  void share(SimTime now);
  void fill(std::span<const int32_t> flows);
  void set_rate(SimTime now, int32_t id, double rate);

  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  int64_t order_ = 0;
  int32_t mark_ = 0;
  // Of the change at hand.
  std::vector<int32_t> affected_;
  std::vector<int32_t> affected_links_;
};

}  // namespace trireme
