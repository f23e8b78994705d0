// The network against SimGrid, an independent simulator of networks (Casanova et al., Versatile,
// scalable and accurate simulation of distributed applications and platforms, JPDC 2014). Its model
// CM02, without cross traffic of acknowledgements and without a bound by a TCP window, is max-min
// fair where all routes have one latency.

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/cluster/link_graph.h"
#include "trireme/sim/fluid_network.h"

namespace trireme {
namespace {

namespace sg = simgrid::s4u;

constexpr double kLatency = 1e-4;  // of each route

struct Flow {
  int32_t from = 0;
  int32_t to = 0;
  double bytes = 0;
  double begin = 0;
};

// All latency is on the links of the devices.
Cluster cluster_of(const Network& network) {
  return {.name = "test",
          .device_kinds = {{.name = "d", .flops = {{"float32", 1e12}}, .bandwidth = 1e12}},
          .host_kinds = {{.name = "h", .device = "d", .devices = 2, .link = {3e9, kLatency / 2}}},
          .hosts = {{.name = "n", .kind = "h", .count = 12}},
          .network = network};
}

std::vector<Flow> random_traffic(std::mt19937& random, int32_t devices) {
  std::vector<Flow> flows;
  std::uniform_real_distribution<double> begin(0, 0.3);
  std::uniform_real_distribution<double> exponent(6, 8.5);
  while (flows.size() < 150) {
    const Flow flow{.from = static_cast<int32_t>(random() % devices),
                    .to = static_cast<int32_t>(random() % devices),
                    .bytes = std::floor(std::pow(10, exponent(random))),
                    .begin = begin(random)};
    if (flow.from != flow.to) flows.push_back(flow);
  }
  return flows;
}

std::vector<double> our_ends(LinkGraph& links, const std::vector<Flow>& flows) {
  FluidNetwork network(links.bandwidths());
  std::multimap<SimTime, int32_t> starts;
  std::vector<std::vector<LinkUse>> paths;
  for (const Flow& flow : flows) {
    starts.emplace(to_sim_time(flow.begin + kLatency), static_cast<int32_t>(paths.size()));
    std::vector<LinkUse>& path = paths.emplace_back();
    for (const int32_t link : links.path(flow.from, flow.to)) path.push_back({link});
  }
  std::vector<double> ends(flows.size());
  while (true) {
    const auto next = network.next();
    if (!starts.empty() && (!next.has_value() || starts.begin()->first < next->time)) {
      const auto [time, flow] = *starts.begin();
      starts.erase(starts.begin());
      network.start(time, flow, paths[flow], flows[flow].bytes);
    } else if (next.has_value()) {
      const FluidNetwork::Completion end = network.pop();
      ends[end.flow] = to_seconds(end.time);
    } else {
      return ends;
    }
  }
}

// SimGrid has one engine a process; platforms beside each other do not meet.
class Platform {
 public:
  Platform(sg::NetZone& zone, LinkGraph& links, const std::string& name) {
    std::vector<sg::Link*> by_index;
    for (const LinkGraph::Link& link : links.links()) {
      by_index.push_back(
          zone.create_link(fmt::format("{} {}", name, by_index.size()), link.speed.bandwidth)
              ->set_latency(link.speed.latency)
              ->seal());
    }
    for (int32_t i = 0; i < links.num_devices(); ++i) {
      hosts_.push_back(zone.create_host(fmt::format("{} host {}", name, i), 1e9)->seal());
    }
    for (int32_t from = 0; from < links.num_devices(); ++from) {
      for (int32_t to = 0; to < links.num_devices(); ++to) {
        if (from == to) continue;
        std::vector<sg::LinkInRoute> route;
        for (const int32_t link : links.path(from, to)) route.emplace_back(by_index[link]);
        zone.add_route(hosts_[from]->get_netpoint(), hosts_[to]->get_netpoint(), nullptr, nullptr,
                       route, /*symmetrical=*/false);
      }
    }
  }
  void add(const std::vector<Flow>& flows, std::vector<double>& ends) {
    ends.resize(flows.size());
    for (size_t i = 0; i < flows.size(); ++i) {
      const Flow flow = flows[i];
      sg::Host* from = hosts_[flow.from];
      sg::Host* to = hosts_[flow.to];
      sg::Actor::create("flow", from, [flow, from, to, &end = ends[i]] {
        sg::this_actor::sleep_until(flow.begin);
        sg::Comm::sendto(from, to, static_cast<uint64_t>(flow.bytes));
        end = sg::Engine::get_clock();
      });
    }
  }

 private:
  std::vector<sg::Host*> hosts_;
};

TEST(SimGrid, RandomTrafficEndsWhenItDoesHere) {
  const char* given = std::getenv("TRIREME_SEED");
  const auto seed = static_cast<uint32_t>(given != nullptr ? std::atoi(given) : 7);
  SCOPED_TRACE(fmt::format("TRIREME_SEED={}", seed));
  std::mt19937 random(seed);
  int argc = 1;
  char program[] = "sim_test";
  char* argv[] = {program, nullptr};
  sg::Engine engine(&argc, argv);
  sg::Engine::set_config("network/model:CM02");
  sg::Engine::set_config("network/crosstraffic:0");
  sg::Engine::set_config("network/TCP-gamma:1e20");
  sg::NetZone* zone = sg::create_full_zone("all");
  struct Case {
    std::string name;
    LinkGraph links;
    std::vector<Flow> flows;
    std::vector<double> ends = {};
  };
  const LinkSpeed speed{1e9, 0};
  std::vector<Case> cases;
  for (const Network& network : std::vector<Network>{
           {.topology = "fat-tree", .speed = speed, .hosts_per_switch = 4, .oversubscription = 3},
           {.topology = "dragonfly",
            .speed = speed,
            .hosts_per_switch = 2,
            .switches_per_group = 2},
           {.topology = "torus", .speed = speed, .dims = {4, 3}}}) {
    Case& added = cases.emplace_back(network.topology, LinkGraph(cluster_of(network)));
    added.flows = random_traffic(random, added.links.num_devices());
  }
  std::vector<Platform> platforms;
  for (Case& each : cases) platforms.emplace_back(*zone, each.links, each.name);
  zone->seal();
  for (size_t i = 0; i < cases.size(); ++i) platforms[i].add(cases[i].flows, cases[i].ends);
  engine.run();
  for (Case& each : cases) {
    const std::vector<double> ends = our_ends(each.links, each.flows);
    double worst = 0;
    double shared = 0;  // flows that others slow down
    for (size_t i = 0; i < ends.size(); ++i) {
      const Flow& flow = each.flows[i];
      const double theirs = each.ends[i] - flow.begin;
      worst = std::max(worst, std::abs((ends[i] - flow.begin) / theirs - 1));
      if (theirs > 1.5 * (kLatency + flow.bytes / 1e9)) ++shared;
    }
    EXPECT_LT(worst, 0.01) << each.name;
    EXPECT_GT(shared, 50) << each.name;
    RecordProperty(each.name + " worst", std::to_string(worst));
    if (given != nullptr) fmt::print("{}: worst {:.2e}, {} shared\n", each.name, worst, shared);
  }
}

}  // namespace
}  // namespace trireme
