#include "trireme/worker/eval_weights.h"

#include <algorithm>
#include <vector>

namespace trireme {
namespace {

constexpr int32_t kCopyTag = 0;  // nothing else travels between two steps

bool reads(const Stage& stage, int32_t input) {
  return std::ranges::find(stage.inputs, input) != stage.inputs.end();
}

// The first stage that reads the input of the trained model. Stage 0 has what none reads, as it
// does when weights are saved.
int32_t holder(const RunSetup& setup, int32_t input) {
  for (size_t s = 0; s < setup.partition.stages.size(); ++s) {
    if (reads(setup.partition.stages[s], input)) return static_cast<int32_t>(s);
  }
  return 0;
}

}  // namespace

Status copy_trained_weights(const RunSetup& setup, int32_t rank, const StageKernels& trained,
                            StageKernels& evaluated, Transport& transport) {
  const EvalModel& model = *setup.eval_model;
  const int32_t own_stage = rank % setup.plan.pp;
  const int32_t first_rank = rank - own_stage;
  // All ranks of a replica go through the same list, so sends and receives meet in order.
  for (size_t i = 0; i < model.sources.size(); ++i) {
    if (!model.sources[i].has_value()) continue;
    const int32_t source = *model.sources[i];
    const auto input = static_cast<int32_t>(i);
    const int32_t from = holder(setup, source);
    for (int32_t stage = 0; stage < setup.plan.pp; ++stage) {
      if (!reads(model.partition.stages[stage], input)) continue;
      const bool is_local = stage == from || reads(setup.partition.stages[stage], source);
      if (is_local && stage == own_stage) {
        TRIREME_TRY(const Message message, trained.state(source));
        TRIREME_TRY(evaluated.set_state(input, message.parts[0]));
      } else if (!is_local && own_stage == from) {
        TRIREME_TRY(const Message message, trained.state(source));
        TRIREME_TRY(const Ticket ticket,
                    transport.post_send(first_rank + stage, kCopyTag, message.parts[0]));
        TRIREME_TRY(transport.wait(ticket));
      } else if (!is_local && own_stage == stage) {
        TRIREME_TRY(const Message message, evaluated.state(input));
        std::vector<std::byte> bytes(message.parts[0].size());
        TRIREME_TRY(const Ticket ticket,
                    transport.post_receive(first_rank + from, kCopyTag, bytes));
        TRIREME_TRY(transport.wait(ticket));
        TRIREME_TRY(evaluated.set_state(input, bytes));
      }
    }
  }
  return Status();
}

}  // namespace trireme
