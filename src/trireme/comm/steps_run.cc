#include "trireme/comm/steps_run.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

// The first steps of a pipeline whose steps overlap are not like the others.
constexpr int32_t kSteps = 14;
constexpr int32_t kMeasuredSteps = 4;
// Three steps after it all that it makes has arrived.
constexpr int32_t kOrderedStep = kSteps - 4;

constexpr PolicyRow kNoPolicy = {};

}  // namespace

StepsRun::StepsRun(const Workload& workload, const StepGraph& graph, const PolicyRow& row,
                   const StepsOptions& options)
    : workload_(workload),
      graph_(graph),
      row_(row),
      options_(options),
      flows_(workload.num_links),
      arbiter_(options.most_hold),
      devices_(workload.tasks.size()),
      stages_(workload.tasks.size()) {
  for (Device& device : devices_) {
    device.begins.assign(kSteps, 0);
    device.ends.assign(kSteps, 0);
  }
  const size_t num_transfers = workload.transfers.size();
  made_.assign(kSteps, std::vector<SimTime>(num_transfers, kNever));
  arrived_.assign(kSteps, std::vector<SimTime>(num_transfers, kNever));
  std::vector<int64_t> bytes;
  for (const Transfer& transfer : workload.transfers) bytes.push_back(transfer.bytes);
  bytes_left_.assign(kSteps, bytes);
  gradient_of_.assign(num_transfers, -1);
  for (const std::vector<int32_t>& gradients : graph.gradients) {
    for (size_t g = 0; g < gradients.size(); ++g) {
      gradient_of_[static_cast<size_t>(gradients[g])] = static_cast<int32_t>(g);
    }
  }
}

void StepsRun::set_policy(size_t stage, std::unique_ptr<Policy> policy) {
  stages_[stage].policy = std::move(policy);
}

bool StepsRun::run() {
  while (true) {
    happen();
    if (std::ranges::all_of(devices_, [](const Device& d) { return d.step == kSteps; })) {
      return true;
    }
    SimTime next = flows_.next_event();
    for (const Device& device : devices_) {
      if (device.is_running) next = std::min(next, device.end);
    }
    next = std::min(next, arbiter_.next_tick(now_).value_or(kNever));
    if (next == kNever) return false;
    now_ = next;
    for (const int64_t id : flows_.advance(now_)) arrive(id);
  }
}

StepsResult StepsRun::result() const {
  StepsResult result;
  result.step = (end_of(kSteps - 1) - end_of(kSteps - 1 - kMeasuredSteps)) / kMeasuredSteps;
  for (const Device& device : devices_) {
    for (size_t kind = 0; kind < kNumTransferKinds; ++kind) {
      result.exposed[kind] = std::max(result.exposed[kind], device.exposed[kind] / kMeasuredSteps);
    }
  }
  result.order = order_;
  return result;
}

IdealTimes StepsRun::ideal_times() const {
  IdealTimes times{
      .step = (end_of(kSteps - 1) - end_of(kSteps - 1 - kMeasuredSteps)) / kMeasuredSteps,
      .made = made_[kOrderedStep],
      .needed = std::vector<SimTime>(workload_.transfers.size(), 0)};
  for (size_t t = 0; t < workload_.transfers.size(); ++t) {
    const Transfer& transfer = workload_.transfers[t];
    const auto producer = static_cast<size_t>(transfer.producer.device);
    if (times.made[t] != kNever) times.made[t] -= devices_[producer].begins[kOrderedStep];
    const Device& consumer = devices_[static_cast<size_t>(transfer.consumer.device)];
    times.needed[t] = consumer.starts[static_cast<size_t>(transfer.consumer.task)] -
                      consumer.begins[kOrderedStep];
  }
  return times;
}

SimTime StepsRun::end_of(int32_t step) const {
  SimTime end = 0;
  for (const Device& device : devices_) {
    end = std::max(end, device.ends[static_cast<size_t>(step)]);
  }
  return end;
}

const Transfer& StepsRun::transfer_of(int32_t index) const {
  return workload_.transfers[static_cast<size_t>(index)];
}

void StepsRun::happen() {
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (size_t d = 0; d < devices_.size(); ++d) has_changed |= advance_device(d);
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    while (stages_[stage].policy != nullptr && pick_unit(stage)) {
    }
  }
  start_what_may();
}

bool StepsRun::advance_device(size_t d) {
  Device& device = devices_[d];
  if (device.is_running) {
    if (device.end > now_) return false;
    device.is_running = false;
    finish_task(d);
    return true;
  }
  if (device.step == kSteps || !can_start(d)) return false;
  start_task(d);
  return true;
}

bool StepsRun::can_start(size_t d) const {
  const Device& device = devices_[d];
  return std::ranges::all_of(graph_.needed_by[d][device.task], [&](const Need& need) {
    const int32_t made_in = device.step - need.distance;
    return made_in < 0 ||
           arrived_[static_cast<size_t>(made_in)][static_cast<size_t>(need.transfer)] != kNever;
  });
}

void StepsRun::start_task(size_t d) {
  Device& device = devices_[d];
  if (device.task == 0) device.begins[static_cast<size_t>(device.step)] = now_;
  if (device.step == kOrderedStep) device.starts.push_back(now_);
  account_wait(d);
  device.is_running = true;
  device.end = now_ + workload_.tasks[d][device.task];
  for (const Need& need : graph_.needed_by[d][device.task]) {
    const int32_t made_in = device.step - need.distance;
    const int32_t gradient = gradient_of_[static_cast<size_t>(need.transfer)];
    Stage& stage = stages_[d];
    if (gradient < 0 || made_in < 0 || stage.policy == nullptr) continue;
    add_waiting(d, stage.policy->on_used({.gradient = gradient, .iteration = made_in}));
  }
}

void StepsRun::account_wait(size_t d) {
  Device& device = devices_[d];
  if (device.step < kSteps - kMeasuredSteps || now_ == device.end) return;
  const Need* last = nullptr;
  SimTime last_arrival = -1;
  for (const Need& need : graph_.needed_by[d][device.task]) {
    const auto made_in = static_cast<size_t>(device.step - need.distance);
    const SimTime arrival = arrived_[made_in][static_cast<size_t>(need.transfer)];
    if (arrival <= last_arrival) continue;
    last_arrival = arrival;
    last = &need;
  }
  if (last == nullptr) return;
  const SimTime made =
      made_[static_cast<size_t>(device.step - last->distance)][static_cast<size_t>(last->transfer)];
  const auto kind = static_cast<size_t>(transfer_of(last->transfer).kind);
  device.exposed[kind] += now_ - std::max(device.end, made);
}

void StepsRun::finish_task(size_t d) {
  Device& device = devices_[d];
  for (const int32_t transfer : graph_.made_by[d][device.task]) make(transfer, device.step);
  if (++device.task < workload_.tasks[d].size()) return;
  device.task = 0;
  device.ends[static_cast<size_t>(device.step)] = now_;
  ++device.step;
}

void StepsRun::make(int32_t index, int32_t step) {
  const Transfer& transfer = transfer_of(index);
  const auto stage = static_cast<size_t>(transfer.producer.device);
  made_[static_cast<size_t>(step)][static_cast<size_t>(index)] = now_;
  if (!is_message(transfer.kind) && step == kOrderedStep) {
    stages_[stage].first_ready = std::min(stages_[stage].first_ready, now_);
  }
  const bool is_free = options_.has_free_network ||
                       workload_.routes[static_cast<size_t>(transfer.route)].members == 1;
  if (is_message(transfer.kind) && !is_free) {
    post({.transfer = index,
          .step = step,
          .stage = transfer.producer.device,
          .flow = flow_of(unit_cost(Operation::kMessage, transfer.bytes,
                                    workload_.routes[static_cast<size_t>(transfer.route)]),
                          transfer)});
  } else if (is_message(transfer.kind) || stages_[stage].policy == nullptr) {
    arrived_[static_cast<size_t>(step)][static_cast<size_t>(index)] = now_;
  } else {
    const GradientRef ready{.gradient = gradient_of_[static_cast<size_t>(index)],
                            .iteration = step};
    add_waiting(stage, stages_[stage].policy->on_ready(ready));
  }
}

Flow StepsRun::flow_of(const UnitCost& cost, const Transfer& transfer) const {
  const bool is_urgent = is_message(transfer.kind);
  const auto num_devices = static_cast<int32_t>(devices_.size());
  return {.cost = cost,
          .path = &workload_.routes[static_cast<size_t>(transfer.route)].path,
          .lane = is_urgent ? num_devices + transfer.route : transfer.producer.device,
          .in_turn = is_urgent || !row_.shares_link,
          .is_urgent = is_urgent && row_.messages_first};
}

void StepsRun::add_waiting(size_t stage, std::vector<Unit> units) {
  for (Unit& unit : units) {
    const UnitKey key{.priority = unit.priority, .sequence = stages_[stage].num_units++};
    stages_[stage].waiting.emplace(key, std::move(unit));
  }
}

bool StepsRun::pick_unit(size_t s) {
  Stage& stage = stages_[s];
  if (stage.waiting.empty()) return false;
  const std::vector<UnitKey> keys = stage.policy->pick({.waiting = stage.waiting,
                                                        .num_in_flight = stage.num_in_flight,
                                                        .bytes_in_flight = stage.bytes_in_flight});
  if (keys.empty()) return false;
  Unit joined;
  for (const UnitKey& key : keys) {
    auto node = stage.waiting.extract(key);
    TRIREME_CHECK(!node.empty(), "a policy picks what does not wait");
    Unit& unit = node.mapped();
    if (key == keys.front()) {
      joined = std::move(unit);
      continue;
    }
    TRIREME_CHECK(unit.operation == joined.operation && unit.iteration == joined.iteration,
                  "a policy joins what does not travel alike");
    joined.parts.insert(joined.parts.end(), unit.parts.begin(), unit.parts.end());
  }
  ++stage.num_in_flight;
  stage.bytes_in_flight += bytes_of(joined);
  const int32_t first = graph_.gradients[s][static_cast<size_t>(joined.parts[0].gradient)];
  const Transfer& transfer = transfer_of(first);
  const Route& route = workload_.routes[static_cast<size_t>(transfer.route)];
  UnitCost cost = unit_cost(joined.operation, bytes_of(joined), route);
  if (options_.has_free_network) cost = {};
  const int32_t step = joined.iteration;
  post({.step = step,
        .stage = static_cast<int32_t>(s),
        .unit = std::move(joined),
        .flow = flow_of(cost, transfer)});
  return true;
}

void StepsRun::post(InFlight posted) {
  const int64_t id = num_posted_++;
  posted.flow.id = id;
  InFlight& in_flight = in_flight_.emplace(id, std::move(posted)).first->second;
  if (!row_.has_arbiter) {
    start(in_flight);
    return;
  }
  arbiter_.on_posted({.id = id,
                      .communicator = in_flight.flow.lane,
                      .urgency = in_flight.unit.has_value() ? 1 : 0,
                      .path = *in_flight.flow.path,
                      .has_receive = true},
                     now_);
}

void StepsRun::start_what_may() {
  while (true) {
    const std::vector<int64_t> ids = arbiter_.may_start(now_);
    if (ids.empty()) return;
    for (const int64_t id : ids) {
      arbiter_.on_started(id, now_);
      start(in_flight_.at(id));
    }
  }
}

void StepsRun::start(InFlight& in_flight) {
  flows_.start(in_flight.flow, now_);
  if (!in_flight.unit.has_value() || in_flight.step != kOrderedStep) return;
  const auto stage = static_cast<size_t>(in_flight.stage);
  in_flight.sent = static_cast<int64_t>(order_.size());
  order_.push_back({.stage = in_flight.stage,
                    .unit = *in_flight.unit,
                    .cost = in_flight.flow.cost,
                    .start = now_ - stages_[stage].first_ready});
}

void StepsRun::arrive(int64_t id) {
  const InFlight in_flight = std::move(in_flight_.extract(id).mapped());
  if (row_.has_arbiter) arbiter_.on_done(id);
  const auto step = static_cast<size_t>(in_flight.step);
  if (!in_flight.unit.has_value()) {
    arrived_[step][static_cast<size_t>(in_flight.transfer)] = now_;
    return;
  }
  const auto s = static_cast<size_t>(in_flight.stage);
  Stage& stage = stages_[s];
  const Unit& unit = *in_flight.unit;
  if (in_flight.sent >= 0) {
    order_[static_cast<size_t>(in_flight.sent)].end = now_ - stages_[s].first_ready;
  }
  --stage.num_in_flight;
  stage.bytes_in_flight -= bytes_of(unit);
  if (unit.operation != Operation::kReduceScatter) {
    for (const UnitPart& part : unit.parts) {
      const auto t = static_cast<size_t>(graph_.gradients[s][static_cast<size_t>(part.gradient)]);
      bytes_left_[step][t] -= part.bytes;
      TRIREME_CHECK(bytes_left_[step][t] >= 0, "a policy sends a gradient twice");
      if (bytes_left_[step][t] == 0) arrived_[step][t] = now_;
    }
  }
  add_waiting(s, stage.policy->on_finish(unit));
}

std::optional<IdealTimes> ideal_times(const Workload& workload, const StepGraph& graph) {
  StepsRun run(workload, graph, kNoPolicy, {.has_free_network = true});
  if (!run.run()) return std::nullopt;
  return run.ideal_times();
}

}  // namespace trireme
