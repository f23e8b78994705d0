// A Simulation for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/sim/simulate.h"

namespace trireme {

// `free_network_step`: of the same schedule with SimOptions::has_free_network; what the step takes
// beyond it is communication that nothing hides. `notes`: sentences about where the numbers come
// from. REQUIRES: the cluster of the simulation.
[[nodiscard]] std::string simulation_table(const Simulation& simulation, SimTime free_network_step,
                                           const Cluster& cluster,
                                           const std::vector<std::string>& notes);
[[nodiscard]] std::string simulation_json(const Simulation& simulation, SimTime free_network_step,
                                          const Cluster& cluster,
                                          const std::vector<std::string>& notes);

}  // namespace trireme
