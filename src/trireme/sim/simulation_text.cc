#include "trireme/sim/simulation_text.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/human_bytes.h"
#include "trireme/base/json_text.h"
#include "trireme/trace/report_text.h"

namespace trireme {
namespace {

constexpr size_t kMaxRows = 32;

// Of 1.
double share(SimTime part, SimTime whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double compute_share(const Simulation& simulation) {
  double sum = 0;
  for (const SimTime compute : simulation.compute) sum += share(compute, simulation.step);
  return sum / static_cast<double>(simulation.compute.size());
}

}  // namespace

std::string simulation_table(const Simulation& simulation, SimTime free_network_step,
                             const Cluster& cluster, const std::vector<std::string>& notes) {
  const Timeline& timeline = simulation.timeline;
  const SimTime exposed = simulation.step - free_network_step;
  const auto in_time = [](SimTime time) { return time_text(static_cast<double>(time)); };
  std::string text =
      fmt::format("{}, {} {} x {} {}, simulated\n", timeline.builder, timeline.num_stages,
                  timeline.num_stages == 1 ? "stage" : "stages", timeline.num_replicas,
                  timeline.num_replicas == 1 ? "replica" : "replicas");
  text += fmt::format("  step           {}\n", in_time(simulation.step));
  text += fmt::format("  compute        {:.1f} % of the time of all ranks\n",
                      100 * compute_share(simulation));
  text += fmt::format("  bubble         {:.1f} %\n", 100 * (1 - compute_share(simulation)));
  text += fmt::format("  communication  {} that nothing hides: {:.1f} % of the step\n",
                      in_time(exposed), 100 * share(exposed, simulation.step));
  if (!simulation.busiest_link.empty()) {
    text += fmt::format("  busiest link   {}, {:.1f} % of its bandwidth\n", simulation.busiest_link,
                        100 * simulation.busiest_link_share);
  }
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  text += "\n  rank  compute  peak memory  of device  host\n";
  const size_t num_ranks = simulation.compute.size();
  for (size_t r = 0; r < std::min(num_ranks, kMaxRows); ++r) {
    const auto peak = static_cast<double>(timeline.peak_bytes[r]);
    const double memory = devices[r]->memory;
    text += fmt::format("  {:>4} {:6.1f} % {:>12} {:>10}  {}\n", r,
                        100 * share(simulation.compute[r], simulation.step),
                        human_bytes(timeline.peak_bytes[r]),
                        memory > 0 ? fmt::format("{:.1f} %", 100 * peak / memory) : "-",
                        timeline.hosts[timeline.host_of_rank[r]]);
  }
  if (num_ranks > kMaxRows) {
    text += fmt::format("  and {} more ranks, which --json lists\n", num_ranks - kMaxRows);
  }
  for (size_t r = 0; r < num_ranks; ++r) {
    const auto peak = static_cast<double>(timeline.peak_bytes[r]);
    if (devices[r]->memory == 0 || peak <= devices[r]->memory) continue;
    text += fmt::format("  rank {} needs {}, more than the {} of its {}\n", r,
                        human_bytes(timeline.peak_bytes[r]),
                        human_bytes(static_cast<int64_t>(devices[r]->memory)), devices[r]->name);
    break;
  }
  for (const std::string& note : notes) text += fmt::format("  {}\n", note);
  return text;
}

std::string simulation_json(const Simulation& simulation, SimTime free_network_step,
                            const Cluster& cluster, const std::vector<std::string>& notes) {
  const Timeline& timeline = simulation.timeline;
  const double computes = compute_share(simulation);
  nlohmann::ordered_json json = {{"schedule", timeline.builder},
                                 {"stages", timeline.num_stages},
                                 {"replicas", timeline.num_replicas},
                                 {"step_ns", simulation.step},
                                 {"free_network_step_ns", free_network_step},
                                 {"compute_share", computes},
                                 {"bubble_rate", 1 - computes},
                                 {"busiest_link", simulation.busiest_link},
                                 {"busiest_link_share", simulation.busiest_link_share},
                                 {"num_events", simulation.num_events}};
  if (!notes.empty()) json["notes"] = notes;
  const std::vector<const DeviceKind*> devices = devices_of(cluster);
  for (size_t r = 0; r < simulation.compute.size(); ++r) {
    json["ranks"].push_back({{"host", timeline.hosts[timeline.host_of_rank[r]]},
                             {"compute_ns", simulation.compute[r]},
                             {"peak_bytes", timeline.peak_bytes[r]},
                             {"device_bytes", devices[r]->memory}});
  }
  return json_text(json, 1) + "\n";
}

}  // namespace trireme
