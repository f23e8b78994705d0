// The communication policies, by name: when gradients are summed, and what goes first on a link.
// One row a policy; what a row says is a few words of a Schedule (CommunicationRules), which is all
// that executor and simulator see.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

struct CommunicationPolicy {
  std::string_view name;
  std::string_view summary;  // for the help
  CommunicationRules rules;
};

inline constexpr std::string_view kDefaultCommunication = "trirace";

[[nodiscard]] std::span<const CommunicationPolicy> communication_policies();
// Error: an unknown name; it lists the known ones.
[[nodiscard]] Result<CommunicationRules> find_communication(std::string_view name);
// "end: ...; fifo: ...; ..."
[[nodiscard]] std::string describe_communication_policies();

}  // namespace trireme
