#include "trireme/comm/step_graph.h"

#include <algorithm>
#include <tuple>

namespace trireme {
namespace {

bool exists(const Transfer& transfer, TableExchange exchange) {
  return transfer.exchange == TableExchange::kAny || transfer.exchange == exchange;
}

}  // namespace

StepGraph step_graph(const Workload& workload, ForwardWaits waits, TableExchange exchange) {
  StepGraph graph;
  graph.gradients.resize(workload.tasks.size());
  for (const std::vector<SimTime>& tasks : workload.tasks) {
    graph.made_by.emplace_back(tasks.size());
    graph.needed_by.emplace_back(tasks.size());
  }
  const auto& transfers = workload.transfers;
  for (size_t t = 0; t < transfers.size(); ++t) {
    if (!exists(transfers[t], exchange) || is_message(transfers[t].kind)) continue;
    graph.gradients[static_cast<size_t>(transfers[t].producer.device)].push_back(
        static_cast<int32_t>(t));
  }
  for (std::vector<int32_t>& gradients : graph.gradients) {
    std::ranges::stable_sort(gradients, {}, [&](int32_t t) {
      const Transfer& transfer = transfers[static_cast<size_t>(t)];
      return std::tuple(transfer.distance, transfer.consumer.task);
    });
  }
  for (size_t t = 0; t < transfers.size(); ++t) {
    const Transfer& transfer = transfers[t];
    if (!exists(transfer, exchange)) continue;
    const auto index = static_cast<int32_t>(t);
    const auto device = static_cast<size_t>(transfer.producer.device);
    graph.made_by[device][static_cast<size_t>(transfer.producer.task)].push_back(index);
    TaskRef consumer = transfer.consumer;
    int32_t distance = transfer.distance;
    if (!is_message(transfer.kind) && waits == ForwardWaits::kForAll) {
      consumer = transfers[static_cast<size_t>(graph.gradients[device].front())].consumer;
    } else if (!is_message(transfer.kind) && waits == ForwardWaits::kAtTheEnd) {
      consumer.task = 0;
      distance = 1;
    }
    graph.needed_by[static_cast<size_t>(consumer.device)][static_cast<size_t>(consumer.task)]
        .push_back({.transfer = index, .distance = distance});
  }
  return graph;
}

}  // namespace trireme
