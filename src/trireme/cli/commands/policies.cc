// `trireme policies`: what decides when gradients travel, and what it is good for.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "trireme/cli/command.h"
#include "trireme/comm/policy_page.h"

namespace trireme {

RequestMaker add_policies(CLI::App& app) {
  const auto wants_page = std::make_shared<bool>(false);
  app.add_flag("--page", *wants_page,
               "print docs/policies.md: simulated steps by each of them, which takes seconds");
  return [wants_page]() -> Result<Request> {
    return Request([wants_page]() -> Result<std::string> {
      if (*wants_page) return policy_page();
      return policy_table();
    });
  };
}

}  // namespace trireme
