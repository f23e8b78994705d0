// Probe: what `trireme probe` has measured of devices and of what joins them, and the Cluster that
// follows from it.
//
// Hosts are joined as by one switch (topology `links`):
//
//   a device and its host   of the messages between two ranks of the host: half of their latency,
//                           and their bandwidth
//   a host and the switch   the bandwidth of its fastest pair; latencies such that the paths come
//                           close to those measured: what is known is the sum of two, so that of
//                           two hosts each has half
//
// What could not be measured is assumed, and notes_of() says it. Hosts with as many devices whose
// rates are within 15 % are of one kind.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/cost/link_fit.h"

namespace trireme {

struct ProbedRank {
  std::string host;
  std::string processor;
  std::map<std::string, Estimate> flops;  // a second, by dtype
  Estimate bytes_per_s;                   // of its memory
  Estimate launch_s;                      // an operator
  double memory = 0;                      // bytes
};

// Messages from one rank to another.
struct ProbedPair {
  int32_t first = 0;
  int32_t second = 0;
  LinkFit fit;
  double cpu_per_byte = 0;  // seconds of a processor at either end
};

// All-reduces over some ranks, as if of a link: seconds = latency + bytes / bandwidth.
struct ProbedAllReduce {
  std::string scope;  // "the ranks of host a", "a rank of each host", "all ranks"
  int32_t members = 0;
  LinkFit fit;
};

struct Probe {
  std::string transport;          // "gloo"
  std::vector<ProbedRank> ranks;  // those of a host are neighbours
  std::vector<ProbedPair> pairs;
  std::vector<ProbedAllReduce> all_reduces;
};

// REQUIRES: a rank at least.
[[nodiscard]] Cluster cluster_of(const Probe& probe);
// What the cluster assumes, a sentence each.
[[nodiscard]] std::vector<std::string> notes_of(const Probe& probe);
// The cluster as YAML that parse_cluster() reads, with all measurements as comments.
[[nodiscard]] std::string cluster_text(const Probe& probe);
// All measurements, for people.
[[nodiscard]] std::string probe_table(const Probe& probe);

}  // namespace trireme
