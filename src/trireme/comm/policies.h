// The table of communication policies: one row a policy, one file a policy in policies/.
#pragma once

#include <span>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/comm/policy.h"

namespace trireme {

// What the forward of the next step, or of the one whose weights the gradients make, waits for.
enum class ForwardWaits : uint8_t {
  kForItsLayer,  // each layer for its own gradient
  kForAll,       // the first layer for all gradients of its stage
  kAtTheEnd,     // the stage for all of them before it does anything else
};

struct PolicyRow {
  std::string_view name;
  std::string_view summary;  // one line for the help and the documentation
  std::string_view source;   // the paper it comes from
  ForwardWaits waits;        // as it was published
  bool shares_link;          // units of a stage that are in flight share its links equally; else
                             // they take them in turn
  bool exchanges_rows;       // of embedding tables
  bool messages_first;       // a sender's link serves messages between stages before gradients
  bool has_arbiter;          // gradients are held while a message is on one of their links
  PolicyOptions defaults;    // what is 0 is not an option of it
  PolicyMaker make;
};

[[nodiscard]] std::span<const PolicyRow> policy_rows();
// Error: an unknown name; it lists the known ones.
[[nodiscard]] Result<const PolicyRow*> find_policy(std::string_view name);
// The defaults of a row, where they have no value.
[[nodiscard]] PolicyOptions with_defaults(const PolicyRow& row, PolicyOptions options);

}  // namespace trireme
