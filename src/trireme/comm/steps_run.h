// StepsRun: the run of a Workload that run_steps() is made of; iteration.h says how it goes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/comm/arbiter.h"
#include "trireme/comm/flows.h"
#include "trireme/comm/iteration.h"
#include "trireme/comm/step_graph.h"

namespace trireme {

// With no policy and a network that costs nothing: when what is made and needed.
struct IdealTimes {
  SimTime step = 0;
  std::vector<SimTime> made;    // by transfer, from the begin of its step
  std::vector<SimTime> needed;  // the same, of the step that needs it
};

class StepsRun {
 public:
  StepsRun(const Workload& workload, const StepGraph& graph, const PolicyRow& row,
           const StepsOptions& options);

  void set_policy(size_t stage, std::unique_ptr<Policy> policy);
  // False: what is left waits for ever.
  bool run();
  [[nodiscard]] StepsResult result() const;
  [[nodiscard]] IdealTimes ideal_times() const;

 private:
  struct Device {
    int32_t step = 0;
    size_t task = 0;
    bool is_running = false;
    SimTime end = 0;              // of the task that runs, or of the last one
    std::vector<SimTime> begins;  // by step
    std::vector<SimTime> ends;    // the same
    std::vector<SimTime> starts;  // by task, of the ordered step
    std::array<SimTime, kNumTransferKinds> exposed = {};
  };
  struct Stage {
    std::unique_ptr<Policy> policy;  // null: gradients are there when they are ready
    std::map<UnitKey, Unit> waiting;
    SimTime first_ready = kNever;  // of the ordered step
    int64_t num_units = 0;
    int32_t num_in_flight = 0;
    int64_t bytes_in_flight = 0;
  };
  // A message of a transfer, or a unit of a stage.
  struct InFlight {
    int32_t transfer = -1;
    int32_t step = 0;
    int32_t stage = 0;
    std::optional<Unit> unit = {};
    Flow flow = {};
    int64_t sent = -1;  // index into order_
  };

  [[nodiscard]] SimTime end_of(int32_t step) const;
  [[nodiscard]] const Transfer& transfer_of(int32_t index) const;
  // All that the present moment has.
  void happen();
  bool advance_device(size_t d);
  [[nodiscard]] bool can_start(size_t d) const;
  void start_task(size_t d);
  // What the task has waited for: the transfer that came last, while it was on its way.
  void account_wait(size_t d);
  void finish_task(size_t d);
  void make(int32_t index, int32_t step);
  // Gradients of a stage have a lane of its own, and messages one for each route.
  [[nodiscard]] Flow flow_of(const UnitCost& cost, const Transfer& transfer) const;
  void add_waiting(size_t stage, std::vector<Unit> units);
  bool pick_unit(size_t s);
  void post(InFlight posted);
  void start_what_may();
  void start(InFlight& in_flight);
  void arrive(int64_t id);

  const Workload& workload_;
  const StepGraph& graph_;
  const PolicyRow& row_;
  StepsOptions options_;
  Flows flows_;
  Arbiter arbiter_;
  SimTime now_ = 0;
  std::vector<Device> devices_;
  std::vector<Stage> stages_;
  std::vector<std::vector<SimTime>> made_;        // by step and transfer
  std::vector<std::vector<SimTime>> arrived_;     // the same
  std::vector<std::vector<int64_t>> bytes_left_;  // the same
  std::vector<int32_t> gradient_of_;              // by transfer, of its stage; -1: a message
  std::map<int64_t, InFlight> in_flight_;         // posted and not arrived
  int64_t num_posted_ = 0;
  std::vector<SentUnit> order_;
};

// When everything is made and needed in the steady state; nullopt: what is left waits for ever.
[[nodiscard]] std::optional<IdealTimes> ideal_times(const Workload& workload,
                                                    const StepGraph& graph);

}  // namespace trireme
