#include "trireme/comm/pipeline_workload.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "trireme/schedule/peers.h"

namespace trireme {
namespace {

using enum ActionKind;

// The tasks of an action, as places in the list of its device.
struct ActionTasks {
  int32_t first = 0;
  int32_t last = 0;
};

class WorkloadBuilder {
 public:
  WorkloadBuilder(const Schedule& schedule, const StepCosts& costs, const StepLayers& layers,
                  const PipelineRoutes& routes)
      : schedule_(schedule), costs_(costs), layers_(layers), routes_(routes) {
    workload_.num_links = routes.num_links;
    workload_.routes = routes.sums;
    for (const auto& [ends, route] : routes.messages) {
      route_of_[ends] = static_cast<int32_t>(workload_.routes.size());
      workload_.routes.push_back(route);
    }
  }

  Result<Workload> build() {
    for (int32_t stage = 0; stage < schedule_.num_stages; ++stage) add_tasks(stage);
    for (int32_t stage = 0; stage < schedule_.num_stages; ++stage) {
      add_messages(stage);
      for (int32_t chunk = 0; chunk < schedule_.num_chunks; ++chunk) add_gradients(stage, chunk);
    }
    TRIREME_TRY(verify_workload(workload_));
    return std::move(workload_);
  }

 private:
  [[nodiscard]] const std::vector<Action>& actions(int32_t stage) const {
    return schedule_.ranks[static_cast<size_t>(stage)];
  }
  [[nodiscard]] const std::vector<LayerCosts>& layers(int32_t stage, int32_t chunk) const {
    return layers_[static_cast<size_t>(stage)][static_cast<size_t>(chunk)];
  }
  [[nodiscard]] const ChunkCosts& chunk_costs(int32_t stage, int32_t chunk) const {
    return costs_.stages[static_cast<size_t>(stage)].chunks[static_cast<size_t>(chunk)];
  }

  [[nodiscard]] SimTime time_of(int32_t stage, const Action& action) const {
    return stretched(stage, work_of(stage, action));
  }

  [[nodiscard]] SimTime stretched(int32_t stage, SimTime work) const {
    if (routes_.shares.empty()) return work;
    return std::llround(static_cast<double>(work) / routes_.shares[static_cast<size_t>(stage)]);
  }

  [[nodiscard]] SimTime work_of(int32_t stage, const Action& action) const {
    const ChunkCosts& costs = chunk_costs(stage, action.chunk);
    switch (action.kind) {
      case kForward:
      case kForwardKeepingInput:
        return costs.forward;
      case kRecompute:
        return costs.recompute;
      case kBackward:
        return costs.backward;
      case kInputGradient:
        return costs.input_gradient;
      case kWeightGradient:
        return costs.weight_gradient;
      default:
        return 0;
    }
  }

  [[nodiscard]] size_t update_of(int32_t stage) const {
    const auto found = std::ranges::find(actions(stage), kUpdate, &Action::kind);
    return static_cast<size_t>(found - actions(stage).begin());
  }

  // The first forward of the chunk after the update: its place, and whether it is in the next step.
  struct FirstForward {
    size_t place = 0;
    int32_t wraps = 0;
  };
  [[nodiscard]] FirstForward first_forward(int32_t stage, int32_t chunk) const {
    const std::vector<Action>& list = actions(stage);
    const size_t update = update_of(stage);
    for (size_t i = 1; i <= list.size(); ++i) {
      const size_t place = (update + i) % list.size();
      if (!is_forward(list[place].kind) || list[place].chunk != chunk) continue;
      return {.place = place, .wraps = place > update ? 0 : 1};
    }
    return {};
  }

  [[nodiscard]] size_t last_backward(int32_t stage, int32_t chunk) const {
    const std::vector<Action>& list = actions(stage);
    size_t last = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      if (ends_backward(list[i].kind) && list[i].chunk == chunk) last = i;
    }
    return last;
  }

  void add_tasks(int32_t stage) {
    std::vector<SimTime>& tasks = workload_.tasks.emplace_back();
    std::vector<ActionTasks>& places = tasks_.emplace_back(actions(stage).size());
    update_tasks_.emplace_back(static_cast<size_t>(schedule_.num_chunks));
    for (size_t i = 0; i < actions(stage).size(); ++i) {
      const Action& action = actions(stage)[i];
      if (!is_compute(action.kind) || action.kind == kUpdate) continue;
      const SimTime time = time_of(stage, action);
      if (is_forward(action.kind) && i == first_forward(stage, action.chunk).place) {
        places[i] = add_first_forward(time, stage, action.chunk, tasks);
        continue;
      }
      std::vector<SimTime> parts = {time};
      if (i == last_backward(stage, action.chunk)) {
        parts = parts_of(time, layers(stage, action.chunk), &LayerCosts::backward);
        std::ranges::reverse(parts);
      }
      places[i] = append(parts, tasks);
    }
  }

  static ActionTasks append(const std::vector<SimTime>& parts, std::vector<SimTime>& tasks) {
    const auto first = static_cast<int32_t>(tasks.size());
    tasks.insert(tasks.end(), parts.begin(), parts.end());
    return {.first = first, .last = static_cast<int32_t>(tasks.size()) - 1};
  }

  // With the updates of its layers: each before its layer where nothing but gradients is waited
  // for; else all before the first, while the activations are on their way.
  ActionTasks add_first_forward(SimTime time, int32_t stage, int32_t chunk,
                                std::vector<SimTime>& tasks) {
    const std::vector<SimTime> forwards =
        parts_of(time, layers(stage, chunk), &LayerCosts::forward);
    const std::vector<SimTime> updates = updates_of(stage, chunk);
    std::vector<int32_t>& places =
        update_tasks_[static_cast<size_t>(stage)][static_cast<size_t>(chunk)];
    const bool alternates = is_first_virtual_stage(schedule_, stage, chunk);
    for (size_t l = 0; l < updates.size(); ++l) {
      places.push_back(append({updates[l]}, tasks).first);
      if (alternates) append({forwards[l]}, tasks);
    }
    if (alternates) return {.first = places[0] + 1, .last = places.back() + 1};
    return append(forwards, tasks);
  }

  // `time` in as many parts as there are layers, in proportion to theirs.
  static std::vector<SimTime> parts_of(SimTime time, const std::vector<LayerCosts>& layers,
                                       SimTime LayerCosts::* of) {
    double whole = 0;
    for (const LayerCosts& layer : layers) whole += static_cast<double>(layer.*of);
    std::vector<SimTime> parts;
    SimTime done = 0;
    double sum = 0;
    for (const LayerCosts& layer : layers) {
      sum += whole > 0 ? static_cast<double>(layer.*of) / whole
                       : 1 / static_cast<double>(layers.size());
      const SimTime until = std::min<SimTime>(time, std::llround(sum * static_cast<double>(time)));
      parts.push_back(until - done);
      done = until;
    }
    parts.back() += time - done;
    return parts;
  }

  // Of the layers of a chunk, by their bytes.
  [[nodiscard]] std::vector<SimTime> updates_of(int32_t stage, int32_t chunk) const {
    double whole = 0;
    for (const std::vector<LayerCosts>& of_chunk : layers_[static_cast<size_t>(stage)]) {
      for (const LayerCosts& layer : of_chunk) whole += static_cast<double>(layer.gradient_bytes);
    }
    const auto update =
        static_cast<double>(stretched(stage, costs_.stages[static_cast<size_t>(stage)].update));
    std::vector<SimTime> updates;
    for (const LayerCosts& layer : layers(stage, chunk)) {
      const double share = whole > 0 ? static_cast<double>(layer.gradient_bytes) / whole : 0;
      updates.push_back(std::llround(update * share));
    }
    return updates;
  }

  // What the passes of the stage hand on: activations forward, gradients back.
  void add_messages(int32_t stage) {
    for (size_t i = 0; i < actions(stage).size(); ++i) {
      const Action& action = actions(stage)[i];
      const bool is_backward = takes_gradient(action.kind);
      if (!is_backward && !is_forward(action.kind)) continue;
      const int32_t here = virtual_stage_of(schedule_, stage, action.chunk);
      const auto place = place_of(schedule_, stage, here + (is_backward ? -1 : 1));
      if (!place.has_value() || place->rank == stage) continue;
      const ChunkCosts& costs = chunk_costs(stage, action.chunk);
      const int64_t bytes = is_backward ? costs.gradient_bytes : costs.activation_bytes;
      if (bytes == 0) continue;
      const auto taker = find_pass(place->rank, place->chunk, action.index, is_backward);
      if (!taker.has_value()) continue;
      const auto& [consumer, batch] = *taker;
      workload_.transfers.push_back(
          {.kind = is_backward ? TransferKind::kGradient : TransferKind::kActivation,
           .bytes = bytes,
           .route = route_of_.at({stage, place->rank}),
           .producer = {stage, tasks_[static_cast<size_t>(stage)][i].last},
           .consumer = {place->rank, consumer.first},
           .distance = action.batch - batch});
    }
  }

  struct Taker {
    ActionTasks tasks;
    int32_t batch = 0;
  };
  [[nodiscard]] std::optional<Taker> find_pass(int32_t stage, int32_t chunk, int32_t micro_batch,
                                               bool is_backward) const {
    for (size_t i = 0; i < actions(stage).size(); ++i) {
      const Action& action = actions(stage)[i];
      const bool fits = is_backward ? takes_gradient(action.kind) : is_forward(action.kind);
      if (!fits || action.chunk != chunk || action.index != micro_batch) continue;
      return Taker{.tasks = tasks_[static_cast<size_t>(stage)][i], .batch = action.batch};
    }
    return std::nullopt;
  }

  void add_gradients(int32_t stage, int32_t chunk) {
    const std::vector<ActionTasks>& tasks = tasks_[static_cast<size_t>(stage)];
    const Action& update = actions(stage)[update_of(stage)];
    const FirstForward forward = first_forward(stage, chunk);
    const ActionTasks& makers = tasks[last_backward(stage, chunk)];
    for (size_t l = 0; l < layers(stage, chunk).size(); ++l) {
      const auto layer = static_cast<int32_t>(l);
      add_gradient(
          workload_, layers(stage, chunk)[l],
          {.route = stage,
           .producer = {stage, makers.last - layer},
           .consumer = {stage,
                        update_tasks_[static_cast<size_t>(stage)][static_cast<size_t>(chunk)][l]},
           .distance = forward.wraps - update.batch});
    }
  }

  const Schedule& schedule_;
  const StepCosts& costs_;
  const StepLayers& layers_;
  const PipelineRoutes& routes_;
  std::map<std::pair<int32_t, int32_t>, int32_t> route_of_;  // of messages, by their ends
  Workload workload_;
  std::vector<std::vector<ActionTasks>> tasks_;                  // by stage and place in its list
  std::vector<std::vector<std::vector<int32_t>>> update_tasks_;  // by stage, chunk and layer
};

}  // namespace

Result<Workload> pipeline_workload(const Schedule& schedule, const StepCosts& costs,
                                   const StepLayers& layers, const PipelineRoutes& routes) {
  if (layers.size() != static_cast<size_t>(schedule.num_stages)) {
    return Error{fmt::format("there are layers of {} stages, and the schedule has {}",
                             layers.size(), schedule.num_stages)};
  }
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    if (layers[stage].size() != static_cast<size_t>(schedule.num_chunks) ||
        std::ranges::any_of(layers[stage], &std::vector<LayerCosts>::empty)) {
      return Error{fmt::format("stage {} has layers of {} chunks, and the schedule has {}", stage,
                               layers[stage].size(), schedule.num_chunks)};
    }
  }
  return WorkloadBuilder(schedule, costs, layers, routes).build();
}

}  // namespace trireme
