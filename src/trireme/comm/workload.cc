#include "trireme/comm/workload.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/comm/step_graph.h"
#include "trireme/comm/steps_run.h"

namespace trireme {
namespace {

Status check_task(const Workload& workload, size_t transfer, const char* which, TaskRef task) {
  const auto num_devices = static_cast<int32_t>(workload.tasks.size());
  if (task.device >= 0 && task.device < num_devices && task.task >= 0 &&
      task.task < static_cast<int32_t>(workload.tasks[static_cast<size_t>(task.device)].size())) {
    return Status();
  }
  return Error{fmt::format("transfer {}: its {} is task {} of device {}, which does not exist",
                           transfer, which, task.task, task.device)};
}

Status check_gradient(const Workload& workload, size_t t) {
  const Transfer& transfer = workload.transfers[t];
  if (transfer.consumer.device != transfer.producer.device) {
    return Error{fmt::format("transfer {} is a gradient of device {} that device {} needs", t,
                             transfer.producer.device, transfer.consumer.device)};
  }
  for (const Transfer& other : workload.transfers) {
    if (is_message(other.kind) || other.producer.device != transfer.producer.device) continue;
    if (other.route == transfer.route) continue;
    return Error{fmt::format("gradients of device {} have two routes", transfer.producer.device)};
  }
  return Status();
}

Status check_transfer(const Workload& workload, size_t t) {
  const Transfer& transfer = workload.transfers[t];
  TRIREME_TRY(check_task(workload, t, "producer", transfer.producer));
  TRIREME_TRY(check_task(workload, t, "consumer", transfer.consumer));
  if (transfer.route < 0 || transfer.route >= static_cast<int32_t>(workload.routes.size())) {
    return Error{
        fmt::format("transfer {} has route {} of {}", t, transfer.route, workload.routes.size())};
  }
  if (transfer.bytes < 1) {
    return Error{fmt::format("transfer {} has {} bytes, not at least 1", t, transfer.bytes)};
  }
  const int32_t least = is_message(transfer.kind) ? 0 : 1;
  if (transfer.distance < least || transfer.distance > 3) {
    return Error{fmt::format("transfer {} is needed {} steps later, not {} to 3", t,
                             transfer.distance, least)};
  }
  return is_message(transfer.kind) ? Status() : check_gradient(workload, t);
}

Status check_routes(const Workload& workload) {
  for (size_t r = 0; r < workload.routes.size(); ++r) {
    const Route& route = workload.routes[r];
    if (route.members < 1 || !(route.link.bytes_per_s > 0) || !(route.link.latency_s >= 0)) {
      return Error{fmt::format("route {} has {} members, {} bytes a second and a latency of {} s",
                               r, route.members, route.link.bytes_per_s, route.link.latency_s)};
    }
    if (!(route.overhead_s >= 0)) {
      return Error{fmt::format("route {} has an overhead of {} s", r, route.overhead_s)};
    }
    if (route.num_servers < 0 || route.num_servers > route.members) {
      return Error{fmt::format("route {} has {} servers, not 0 to {}, as many as members", r,
                               route.num_servers, route.members)};
    }
    for (const int32_t link : route.path) {
      if (link >= 0 && link < workload.num_links) continue;
      return Error{fmt::format("route {} has link {} of {}", r, link, workload.num_links)};
    }
  }
  return Status();
}

}  // namespace

Status verify_workload(const Workload& workload) {
  if (workload.tasks.empty()) return Error{"a workload has no device"};
  for (size_t d = 0; d < workload.tasks.size(); ++d) {
    if (workload.tasks[d].empty()) return Error{fmt::format("device {} has no task", d)};
    for (const SimTime task : workload.tasks[d]) {
      if (task < 0) return Error{fmt::format("device {} has a task of {} ns", d, task)};
    }
  }
  TRIREME_TRY(check_routes(workload));
  for (size_t t = 0; t < workload.transfers.size(); ++t) TRIREME_TRY(check_transfer(workload, t));
  const StepGraph graph =
      step_graph(workload, ForwardWaits::kForItsLayer, TableExchange::kWholeTable);
  if (ideal_times(workload, graph).has_value()) return Status();
  return Error{"a task waits for a transfer that is made only after it"};
}

void add_gradient(Workload& workload, const LayerCosts& layer, Transfer transfer) {
  if (layer.gradient_bytes == 0) return;
  transfer.kind = TransferKind::kAllReduce;
  transfer.bytes = layer.gradient_bytes;
  const int64_t rows = layer.prior_row_bytes + layer.delayed_row_bytes;
  const Route& route = workload.routes[static_cast<size_t>(transfer.route)];
  if (rows == 0 || unit_cost(Operation::kRows, rows, route).total() >=
                       unit_cost(Operation::kAllReduce, transfer.bytes, route).total()) {
    workload.transfers.push_back(transfer);
    return;
  }
  transfer.exchange = TableExchange::kWholeTable;
  workload.transfers.push_back(transfer);
  transfer.kind = TransferKind::kRows;
  transfer.exchange = TableExchange::kRowsOnly;
  transfer.bytes = layer.prior_row_bytes;
  if (transfer.bytes > 0) workload.transfers.push_back(transfer);
  transfer.bytes = layer.delayed_row_bytes;
  transfer.distance += 1;
  if (transfer.bytes > 0) workload.transfers.push_back(transfer);
}

Workload chain_workload(const std::vector<LayerCosts>& layers, const Route& route) {
  Workload workload{.tasks = {{}}, .routes = {route}};
  for (const int32_t link : route.path) {
    workload.num_links = std::max(workload.num_links, link + 1);
  }
  for (const LayerCosts& layer : layers) workload.tasks[0].push_back(layer.forward);
  for (size_t l = layers.size(); l-- > 0;) {
    workload.tasks[0].push_back(layers[l].backward);
    const TaskRef producer{.task = static_cast<int32_t>(2 * layers.size() - 1 - l)};
    const TaskRef consumer{.task = static_cast<int32_t>(l)};
    add_gradient(workload, layers[l], {.producer = producer, .consumer = consumer, .distance = 1});
  }
  return workload;
}

}  // namespace trireme
