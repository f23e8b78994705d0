#include "trireme/worker/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/cluster/this_host.h"
#include "trireme/cost/probe.h"
#include "trireme/import/output_path.h"
#include "trireme/torch/device_rates.h"
#include "trireme/worker/link_probe.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// Shares of the budget.
constexpr double kRatesShare = 0.25;
constexpr double kPairsShare = 0.45;
constexpr double kAllReducesShare = 0.3;
constexpr size_t kMostHostsInPairs = 12;  // beyond it not every pair of hosts is measured
constexpr int32_t kTextTag = 7;

// Of some ranks, one after the other.
struct Experiment {
  std::string scope;  // of an all-reduce; empty: a pair
  std::vector<int32_t> members;
  double budget_s = 0;
};

Json to_json(const Experiment& each) {
  return {{"scope", each.scope}, {"members", each.members}, {"budget_s", each.budget_s}};
}

Experiment experiment_of(const Json& json) {
  return {.scope = json["scope"],
          .members = json["members"].get<std::vector<int32_t>>(),
          .budget_s = json["budget_s"]};
}

// The ranks of each host, in the order of its first rank.
using Hosts = std::vector<std::vector<int32_t>>;

std::vector<std::pair<size_t, size_t>> pairs_of_hosts(size_t count) {
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < count; ++a) {
    if (count > kMostHostsInPairs) {
      for (const size_t b : {(a + 1) % count, (a + count / 2) % count}) {
        pairs.emplace(std::min(a, b), std::max(a, b));
      }
      continue;
    }
    for (size_t b = a + 1; b < count; ++b) pairs.emplace(a, b);
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<Experiment> choose_experiments(const Hosts& hosts,
                                           const std::vector<std::string>& names, double budget_s) {
  std::vector<Experiment> pairs;
  std::vector<Experiment> all_reduces;
  std::vector<int32_t> firsts;
  std::vector<int32_t> all;
  for (const std::vector<int32_t>& ranks : hosts) {
    firsts.push_back(ranks.front());
    all.insert(all.end(), ranks.begin(), ranks.end());
    if (ranks.size() > 1) pairs.push_back({.members = {ranks[0], ranks[1]}});
  }
  for (const auto& [a, b] : pairs_of_hosts(hosts.size())) {
    pairs.push_back({.members = {firsts[a], firsts[b]}});
  }
  const auto largest = std::ranges::max_element(hosts, {}, &std::vector<int32_t>::size);
  if (largest->size() > 1) {
    const auto& name = names[static_cast<size_t>(largest - hosts.begin())];
    all_reduces.push_back({.scope = fmt::format("the ranks of {}", name), .members = *largest});
  }
  if (hosts.size() > 1) all_reduces.push_back({.scope = "a rank of each host", .members = firsts});
  std::ranges::sort(all);
  if (hosts.size() > 1 && all.size() > hosts.size()) {
    all_reduces.push_back({.scope = "all ranks", .members = all});
  }
  for (Experiment& each : pairs) {
    each.budget_s = kPairsShare * budget_s / static_cast<double>(pairs.size());
  }
  for (Experiment& each : all_reduces) {
    each.budget_s = kAllReducesShare * budget_s / static_cast<double>(all_reduces.size());
  }
  pairs.insert(pairs.end(), all_reduces.begin(), all_reduces.end());
  return pairs;
}

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return as_utf8(name.data());
}

class ProbingRank {
 public:
  ProbingRank(const RunSetup& setup, RankContext context)
      : setup_(setup), context_(std::move(context)), transport_(*context_.transport) {}

  Status run() {
    std::vector<int32_t> all(static_cast<size_t>(setup_.num_ranks()));
    std::iota(all.begin(), all.end(), 0);
    TRIREME_TRY(world_, transport_.join("probe", std::move(all)));
    TRIREME_TRY(meet());
    say("timing operators");
    const std::string own = facts().dump();
    TRIREME_TRY(meet());
    std::string plan;
    if (context_.rank == 0) {
      TRIREME_TRY(plan, gather(own));
    } else {
      TRIREME_TRY(send_text(0, own));
    }
    TRIREME_TRY(plan, share(std::move(plan)));
    const Json experiments = Json::parse(plan);
    for (size_t i = 0; i < experiments.size(); ++i) {
      TRIREME_TRY(run_one(experiment_of(experiments[i]), i, experiments.size()));
    }
    return context_.rank == 0 ? finish() : Status();
  }

 private:
  double budget() const { return setup_.request.probe->budget_s; }

  void say(std::string what) const {
    if (context_.phase) context_.phase(std::move(what));
  }

  // Waits for all ranks.
  Status meet() {
    std::array<float, 1> nothing{};
    TRIREME_TRY(const Ticket ticket,
                transport_.post_all_reduce(world_, DType::kFloat32,
                                           std::as_writable_bytes(std::span(nothing))));
    return transport_.wait(ticket);
  }

  // `text` outlives the wait.
  Status send_text(int32_t peer, const std::string& text) {
    const auto size = static_cast<int64_t>(text.size());
    TRIREME_TRY(const Ticket first,
                transport_.post_send(peer, kTextTag, std::as_bytes(std::span(&size, 1))));
    TRIREME_TRY(transport_.wait(first));
    TRIREME_TRY(const Ticket second,
                transport_.post_send(peer, kTextTag, std::as_bytes(std::span(text))));
    return transport_.wait(second);
  }

  Result<std::string> receive_text(int32_t peer) {
    int64_t size = 0;
    TRIREME_TRY(
        const Ticket first,
        transport_.post_receive(peer, kTextTag, std::as_writable_bytes(std::span(&size, 1))));
    TRIREME_TRY(transport_.wait(first));
    std::string text(static_cast<size_t>(size), '\0');
    TRIREME_TRY(const Ticket second,
                transport_.post_receive(peer, kTextTag, std::as_writable_bytes(std::span(text))));
    TRIREME_TRY(transport_.wait(second));
    return text;
  }

  // Rank 0's text, to all.
  Result<std::string> share(std::string text) {
    if (context_.rank != 0) return receive_text(0);
    for (int32_t peer = 1; peer < setup_.num_ranks(); ++peer) {
      TRIREME_TRY(send_text(peer, text));
    }
    return text;
  }

  [[nodiscard]] Json facts() const {
    const DeviceRates rates = measure_device_rates(kRatesShare * budget(), setup_.request.threads);
    const ThisHost host = this_host(1);
    return {{"name", host_name()},
            {"boot", read_line("/proc/sys/kernel/random/boot_id")},
            {"processor", as_utf8(host.processor)},
            {"memory", host.cluster.device_kinds.front().memory},
            {"flops", rates.flops},
            {"bytes_per_s", rates.bytes_per_s},
            {"launch_s", rates.launch_s}};
  }

  // Rank 0: what all have measured, and the experiments to come.
  Result<std::string> gather(const std::string& own) {
    Hosts hosts;
    std::vector<std::string> identities;
    std::vector<std::string> names;
    for (int32_t rank = 0; rank < setup_.num_ranks(); ++rank) {
      std::string text = own;
      if (rank != 0) {
        TRIREME_TRY(text, receive_text(rank));
      }
      const Json json = Json::parse(text);
      const std::string identity =
          json["name"].get<std::string>() + json["boot"].get<std::string>();
      const auto known = std::ranges::find(identities, identity);
      const auto host = static_cast<size_t>(known - identities.begin());
      if (known == identities.end()) {
        identities.push_back(identity);
        names.push_back(unused_name(json["name"], names));
        hosts.emplace_back();
      } else if (hosts[host].back() != rank - 1) {
        return Error{
            fmt::format("host {} has rank {} and rank {}, but not those between; start the ranks "
                        "host by host, as a cluster file counts them",
                        names[host], hosts[host].back(), rank)};
      }
      hosts[host].push_back(rank);
      probe_.ranks.push_back(rank_of(json, names[host]));
    }
    for (const std::vector<int32_t>& ranks : hosts) {
      for (const int32_t rank : ranks) {
        probe_.ranks[static_cast<size_t>(rank)].memory /= static_cast<double>(ranks.size());
      }
    }
    Json plan = Json::array();
    for (const Experiment& each : choose_experiments(hosts, names, budget())) {
      plan.push_back(to_json(each));
    }
    return plan.dump();
  }

  static std::string unused_name(const std::string& name, const std::vector<std::string>& taken) {
    std::string unused = name;
    for (int n = 2; std::ranges::find(taken, unused) != taken.end(); ++n) {
      unused = fmt::format("{}-{}", name, n);
    }
    return unused;
  }

  static ProbedRank rank_of(const Json& json, const std::string& host) {
    ProbedRank rank{.host = host,
                    .processor = json["processor"],
                    .bytes_per_s = estimate_median(json["bytes_per_s"].get<std::vector<double>>()),
                    .launch_s = estimate_median(json["launch_s"].get<std::vector<double>>()),
                    .memory = json["memory"]};
    for (const auto& [dtype, rates] : json["flops"].items()) {
      rank.flops[dtype] = estimate_median(rates.get<std::vector<double>>());
    }
    return rank;
  }

  Status run_one(const Experiment& experiment, size_t index, size_t count) {
    const Clock::time_point begin = Clock::now();
    say(fmt::format("experiment {} of {}", index + 1, count));
    const int32_t leader = experiment.members.front();
    const bool takes_part =
        std::ranges::find(experiment.members, context_.rank) != experiment.members.end();
    LinkSamples samples;
    if (takes_part && experiment.scope.empty()) {
      TRIREME_TRY(samples, probe_pair(transport_, context_.rank, leader, experiment.members[1],
                                      experiment.budget_s));
    } else if (takes_part) {
      TRIREME_TRY(const CommunicatorId communicator,
                  transport_.join(fmt::format("probe.{}", index), experiment.members));
      TRIREME_TRY(samples, probe_all_reduce(transport_, communicator, context_.rank == leader,
                                            experiment.budget_s));
    }
    TRIREME_TRY(report(experiment, samples));
    TRIREME_TRY(meet());
    if (context_.rank != 0) return Status();
    const std::chrono::duration<double> lasted = Clock::now() - begin;
    publish(
        {{"event", "step"}, {"step", index + 1}, {"steps", count}, {"seconds", lasted.count()}});
    return Status();
  }

  // From the rank that has the samples to rank 0.
  Status report(const Experiment& experiment, const LinkSamples& samples) {
    const int32_t leader = experiment.members.front();
    Json json = {{"cpu_per_byte", samples.cpu_per_byte}, {"sizes", Json::array()}};
    for (const TimedSize& size : samples.sizes) {
      json["sizes"].push_back({{"bytes", size.bytes}, {"seconds", size.seconds}});
    }
    std::string text = json.dump();
    if (context_.rank == leader && leader != 0) TRIREME_TRY(send_text(0, text));
    if (context_.rank != 0) return Status();
    if (leader != 0) {
      TRIREME_TRY(text, receive_text(leader));
    }
    keep(experiment, Json::parse(text));
    return Status();
  }

  void keep(const Experiment& experiment, const Json& json) {
    std::vector<TimedSize> sizes;
    for (const Json& size : json["sizes"]) {
      sizes.push_back({size["bytes"], size["seconds"].get<std::vector<double>>()});
    }
    const std::optional<LinkFit> fit = fit_link(sizes);
    const std::vector<int32_t>& members = experiment.members;
    if (!fit.has_value()) {
      const std::string what = experiment.scope.empty()
                                   ? fmt::format("ranks {} and {}", members[0], members[1])
                                   : "an all-reduce over " + experiment.scope;
      notes_.push_back(fmt::format(
          "{}: longer messages took no longer, so nothing is known; give a larger --budget", what));
    } else if (experiment.scope.empty()) {
      probe_.pairs.push_back({.first = members[0],
                              .second = members[1],
                              .fit = *fit,
                              .cpu_per_byte = json["cpu_per_byte"]});
    } else {
      probe_.all_reduces.push_back({.scope = experiment.scope,
                                    .members = static_cast<int32_t>(members.size()),
                                    .fit = *fit});
    }
  }

  Status finish() {
    const RunRequest& request = setup_.request;
    probe_.transport = request.transport_kind() == TransportKind::kGloo ? "gloo" : "direct";
    const std::string text = cluster_text(probe_);
    if (!request.probe->output.empty()) TRIREME_TRY(write_whole(request.probe->output, text));
    publish({{"event", "result"},
             {"table", probe_table(probe_)},
             {"cluster", text},
             {"notes", notes_}});
    return Status();
  }

  void publish(const nlohmann::ordered_json& event) const { context_.publish(json_text(event)); }

  const RunSetup& setup_;
  const RankContext context_;
  Transport& transport_;
  CommunicatorId world_;
  Probe probe_;                     // of rank 0
  std::vector<std::string> notes_;  // the same
};

}  // namespace

RankOutcome probe_rank(const RunSetup& setup, const RankContext& context) {
  auto rank = std::make_unique<ProbingRank>(setup, context);
  RankOutcome outcome{.status = rank->run(), .is_own = false};
  // Other threads may still write into the buffers of an experiment that failed.
  if (!outcome.status.ok()) static_cast<void>(rank.release());
  return outcome;
}

}  // namespace trireme
