// Command: a row of the table of sub-commands (options.cc), and a file of commands/.
#pragma once

#include <functional>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace CLI {
class App;
}

namespace trireme {

// Makes the request once the words are parsed. Error: what contradicts itself, in words.
using RequestMaker = std::function<Result<Request>()>;

struct Command {
  const char* name;
  const char* summary;
  // Examples and what else its help ends with; null: that of the program.
  const char* footer;
  // Adds its options to `app`, which outlives what it returns.
  RequestMaker (*add)(CLI::App& app);
};

// Each in the file of its name; `eval` is with `train`.
RequestMaker add_inspect(CLI::App& app);
RequestMaker add_plan(CLI::App& app);
RequestMaker add_policies(CLI::App& app);
RequestMaker add_profile(CLI::App& app);
RequestMaker add_probe(CLI::App& app);
RequestMaker add_rehearse(CLI::App& app);
RequestMaker add_report(CLI::App& app);
RequestMaker add_schedule(CLI::App& app);
RequestMaker add_simulate(CLI::App& app);
RequestMaker add_train(CLI::App& app);
RequestMaker add_tune_comm(CLI::App& app);
RequestMaker add_eval(CLI::App& app);

}  // namespace trireme
