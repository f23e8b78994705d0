#include "trireme/schedule/communication.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

constexpr CommunicationPolicy kPolicies[] = {
    // Narayanan et al., PipeDream-2BW, ICML 2021.
    {.name = "end",
     .summary = "a step ends with its sums of gradients and its update",
     .rules = {.updates_at_end = true, .has_one_urgency = true}},
    // Wait-free backpropagation: Zhang et al., Poseidon, ATC 2017.
    {.name = "fifo",
     .summary = "sums leave when their gradients are final, and nothing goes before anything else",
     .rules = {.sums_early = true, .has_one_urgency = true}},
    // Li et al., TriRace, TPDS 2024.
    {.name = "trirace",
     .summary =
         "the same, but transfers between stages go before sums, where the wire can tell them "
         "apart (Gloo cannot)",
     .rules = {.sums_early = true}},
};

}  // namespace

std::span<const CommunicationPolicy> communication_policies() { return kPolicies; }

Result<CommunicationRules> find_communication(std::string_view name) {
  std::vector<std::string_view> names;
  for (const CommunicationPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.rules;
    names.push_back(policy.name);
  }
  return Error{fmt::format("unknown communication policy {}; known are {}", in_quotes(name),
                           fmt::join(names, ", "))};
}

std::string describe_communication_policies() {
  std::vector<std::string> rows;
  for (const CommunicationPolicy& policy : kPolicies) {
    rows.push_back(fmt::format("{}: {}", policy.name, policy.summary));
  }
  return fmt::format("{}", fmt::join(rows, "; "));
}

}  // namespace trireme
