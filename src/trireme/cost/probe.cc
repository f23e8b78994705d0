#include "trireme/cost/probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/base/median.h"

namespace trireme {
namespace {

constexpr double kSameKind = 0.15;
constexpr int kNumSweeps = 200;
constexpr const char* kSwitch = "switch";

// Ranks first .. first + count - 1.
struct Host {
  std::string name;
  int32_t first = 0;
  int32_t count = 0;
  DeviceKind device;  // medians over its ranks
  LinkSpeed link;     // of a device to the host; no bandwidth: not measured
};

// Four digits: more are noise.
double rounded(double value) { return std::stod(fmt::format("{:.4g}", value)); }

LinkSpeed rounded(const LinkSpeed& speed) {
  return {.bandwidth = rounded(speed.bandwidth),
          .latency = rounded(speed.latency),
          .cpu_per_byte = rounded(speed.cpu_per_byte)};
}

DeviceKind rounded(DeviceKind kind) {
  for (auto& [dtype, flops] : kind.flops) flops = rounded(flops);
  kind.bandwidth = rounded(kind.bandwidth);
  kind.launch = rounded(kind.launch);
  return kind;
}

double median_over(std::span<const ProbedRank> ranks,
                   const std::function<double(const ProbedRank&)>& rate) {
  std::vector<double> values;
  for (const ProbedRank& rank : ranks) values.push_back(rate(rank));
  return median(std::move(values));
}

DeviceKind device_of(std::span<const ProbedRank> ranks) {
  DeviceKind kind;
  for (const auto& [dtype, ignored] : ranks.front().flops) {
    kind.flops[dtype] = median_over(ranks, [&](const ProbedRank& rank) {
      const auto found = rank.flops.find(dtype);
      return found == rank.flops.end() ? 0 : found->second.value;
    });
  }
  kind.memory = median_over(ranks, [](const ProbedRank& rank) { return rank.memory; });
  kind.bandwidth =
      median_over(ranks, [](const ProbedRank& rank) { return rank.bytes_per_s.value; });
  kind.launch = median_over(ranks, [](const ProbedRank& rank) { return rank.launch_s.value; });
  return kind;
}

// Its host, as an index.
int32_t host_of(const std::vector<Host>& hosts, int32_t rank) {
  const auto after = std::ranges::upper_bound(hosts, rank, {}, &Host::first);
  return static_cast<int32_t>(after - hosts.begin()) - 1;
}

std::vector<Host> hosts_of(const Probe& probe) {
  TRIREME_CHECK(!probe.ranks.empty(), "a probe has a rank at least");
  std::vector<Host> hosts;
  for (size_t rank = 0; rank < probe.ranks.size(); ++rank) {
    if (hosts.empty() || hosts.back().name != probe.ranks[rank].host) {
      hosts.push_back({.name = probe.ranks[rank].host, .first = static_cast<int32_t>(rank)});
    }
    ++hosts.back().count;
  }
  const std::span<const ProbedRank> ranks(probe.ranks);
  for (Host& host : hosts) {
    host.device =
        device_of(ranks.subspan(static_cast<size_t>(host.first), static_cast<size_t>(host.count)));
  }
  for (const ProbedPair& pair : probe.pairs) {
    const int32_t host = host_of(hosts, pair.first);
    if (host != host_of(hosts, pair.second)) continue;
    hosts[static_cast<size_t>(host)].link = {.bandwidth = pair.fit.bytes_per_s.value,
                                             .latency = pair.fit.latency_s.value / 2,
                                             .cpu_per_byte = pair.cpu_per_byte};
  }
  return hosts;
}

bool are_close(double a, double b) { return std::abs(a - b) <= kSameKind * std::max(a, b); }

bool are_alike(const Host& a, const Host& b) {
  if (a.count != b.count || a.device.flops.size() != b.device.flops.size()) return false;
  for (const auto& [dtype, flops] : a.device.flops) {
    const auto other = b.device.flops.find(dtype);
    if (other == b.device.flops.end() || !are_close(flops, other->second)) return false;
  }
  return are_close(a.device.bandwidth, b.device.bandwidth) &&
         are_close(a.device.memory, b.device.memory) &&
         are_close(a.device.launch, b.device.launch) &&
         are_close(a.link.bandwidth, b.link.bandwidth);
}

// A link whose bandwidth was not measured is no limit.
LinkSpeed link_within(const Host& host) {
  LinkSpeed link = host.link;
  if (link.bandwidth <= 0) link.bandwidth = host.device.bandwidth;
  return link;
}

// A pair of hosts, and how long messages take from one's door to the other's.
struct Hop {
  size_t a = 0;
  size_t b = 0;
  double latency = 0;
  double bandwidth = 0;
  double cpu_per_byte = 0;
};

std::vector<Hop> hops_of(const Probe& probe, const std::vector<Host>& hosts) {
  std::vector<Hop> hops;
  for (const ProbedPair& pair : probe.pairs) {
    const auto a = static_cast<size_t>(host_of(hosts, pair.first));
    const auto b = static_cast<size_t>(host_of(hosts, pair.second));
    if (a == b) continue;
    const double inside = link_within(hosts[a]).latency + link_within(hosts[b]).latency;
    hops.push_back({.a = a,
                    .b = b,
                    .latency = std::max(0.0, pair.fit.latency_s.value - inside),
                    .bandwidth = pair.fit.bytes_per_s.value,
                    .cpu_per_byte = pair.cpu_per_byte});
  }
  return hops;
}

// Latencies of the links of hosts to the switch, of which each hop has two: least squares, link by
// link.
std::vector<double> latencies_of(const std::vector<Hop>& hops, size_t num_hosts) {
  std::vector<double> latencies(num_hosts, 0);
  for (const Hop& hop : hops) {
    for (const size_t host : {hop.a, hop.b}) {
      latencies[host] = std::max(latencies[host], hop.latency / 2);
    }
  }
  for (int sweep = 0; sweep < kNumSweeps; ++sweep) {
    for (size_t host = 0; host < num_hosts; ++host) {
      double sum = 0;
      int count = 0;
      for (const Hop& hop : hops) {
        if (hop.a != host && hop.b != host) continue;
        sum += hop.latency - latencies[hop.a == host ? hop.b : hop.a];
        ++count;
      }
      if (count > 0) latencies[host] = std::max(0.0, sum / count);
    }
  }
  return latencies;
}

void add_network(const Probe& probe, const std::vector<Host>& hosts, Cluster& cluster) {
  if (hosts.size() == 1) return;
  const std::vector<Hop> hops = hops_of(probe, hosts);
  const std::vector<double> latencies = latencies_of(hops, hosts.size());
  std::string center = kSwitch;
  while (std::ranges::any_of(hosts, [&](const Host& host) { return host.name == center; })) {
    center += "-";
  }
  for (size_t host = 0; host < hosts.size(); ++host) {
    LinkSpeed speed{.latency = latencies[host]};
    for (const Hop& hop : hops) {
      if ((hop.a != host && hop.b != host) || hop.bandwidth <= speed.bandwidth) continue;
      speed.bandwidth = hop.bandwidth;
      speed.cpu_per_byte = hop.cpu_per_byte;
    }
    if (speed.bandwidth <= 0) speed.bandwidth = hosts[host].device.bandwidth;
    cluster.network.links.push_back(
        {.from = hosts[host].name, .to = center, .speed = rounded(speed)});
  }
}

std::string with_interval(const Estimate& estimate, double unit, std::string_view name) {
  return fmt::format("{:.4g} {} ({:.4g} .. {:.4g})", estimate.value / unit, name,
                     estimate.low / unit, estimate.high / unit);
}

std::string link_text(const LinkFit& fit) {
  return fmt::format("{}, {}", with_interval(fit.latency_s, 1e-6, "us"),
                     with_interval(fit.bytes_per_s, 1e6, "MB/s"));
}

std::vector<std::string> measurements(const Probe& probe) {
  std::vector<std::string> lines;
  lines.push_back("ranks, all at once:");
  for (size_t r = 0; r < probe.ranks.size(); ++r) {
    const ProbedRank& rank = probe.ranks[r];
    lines.push_back(fmt::format("  rank {} on {}, {}", r, rank.host, rank.processor));
    for (const auto& [dtype, flops] : rank.flops) {
      lines.push_back(fmt::format("    {:<9} {}", dtype, with_interval(flops, 1e9, "Gflop/s")));
    }
    lines.push_back(fmt::format("    memory    {}", with_interval(rank.bytes_per_s, 1e9, "GB/s")));
    lines.push_back(fmt::format("    operator  {}", with_interval(rank.launch_s, 1e-6, "us")));
  }
  if (!probe.pairs.empty()) {
    lines.push_back(fmt::format("messages over {}, one at a time:", probe.transport));
  }
  for (const ProbedPair& pair : probe.pairs) {
    lines.push_back(fmt::format("  ranks {} and {}: {}, {:.3g} ns of a processor a byte",
                                pair.first, pair.second, link_text(pair.fit),
                                pair.cpu_per_byte * 1e9));
  }
  if (!probe.all_reduces.empty()) lines.emplace_back("all-reduces:");
  for (const ProbedAllReduce& each : probe.all_reduces) {
    lines.push_back(
        fmt::format("  {}, {} members: {}", each.scope, each.members, link_text(each.fit)));
  }
  return lines;
}

}  // namespace

Cluster cluster_of(const Probe& probe) {
  const std::vector<Host> hosts = hosts_of(probe);
  Cluster cluster{
      .name = fmt::format("{} measured {}", hosts.size(), hosts.size() == 1 ? "host" : "hosts")};
  std::vector<const Host*> firsts;  // of each kind
  for (const Host& host : hosts) {
    const auto found =
        std::ranges::find_if(firsts, [&](const Host* first) { return are_alike(*first, host); });
    const auto kind = static_cast<size_t>(found - firsts.begin());
    const std::string suffix = kind == 0 ? "" : fmt::format("-{}", kind + 1);
    if (found == firsts.end()) {
      firsts.push_back(&host);
      cluster.device_kinds.push_back(rounded(host.device));
      cluster.device_kinds.back().name = "device" + suffix;
      cluster.host_kinds.push_back({.name = "host" + suffix,
                                    .device = "device" + suffix,
                                    .devices = host.count,
                                    .link = rounded(link_within(host))});
    }
    cluster.hosts.push_back({.name = host.name, .kind = "host" + suffix});
  }
  add_network(probe, hosts, cluster);
  return cluster;
}

std::vector<std::string> notes_of(const Probe& probe) {
  std::vector<std::string> notes;
  for (const Host& host : hosts_of(probe)) {
    if (host.link.bandwidth > 0) continue;
    notes.push_back(
        fmt::format("host {} has one rank, so the link of a device to it is assumed to have no "
                    "latency and the bandwidth of its memory",
                    host.name));
  }
  return notes;
}

std::string cluster_text(const Probe& probe) {
  std::string text = "# Measured by trireme probe; (low .. high): 95 % of the fits.\n#\n";
  for (const std::string& line : measurements(probe)) text += fmt::format("# {}\n", line);
  for (const std::string& note : notes_of(probe)) text += fmt::format("# {}\n", note);
  return text + to_text(cluster_of(probe));
}

std::string probe_table(const Probe& probe) {
  std::string text;
  for (const std::string& line : measurements(probe)) text += line + "\n";
  for (const std::string& note : notes_of(probe)) text += note + "\n";
  return text;
}

}  // namespace trireme
