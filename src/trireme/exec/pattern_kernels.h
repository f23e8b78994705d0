// PatternKernels: kernels for tests. They compute nothing, send numbers that tell what they are,
// check that what arrives is what it should be, and record every call.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/exec/kernels.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

class PatternKernels : public Kernels {
 public:
  // The schedule must outlive the kernels.
  PatternKernels(const Schedule& schedule, int32_t rank) : schedule_(schedule), rank_(rank) {}

  Status compute(const Action& action) override;
  Result<Message> message(const Action& action) override;
  // Fails when the message holds another pattern than its sender's, or another sum.
  Status complete(const Action& action) override;
  // What was of the next batch is of this one now. Call it after each step.
  void end_step() { ++step_; }

  // One line a call: "F0", "message RA1", "complete RA1".
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }

 private:
  using Parts = std::vector<std::vector<std::byte>>;

  const Schedule& schedule_;
  int32_t rank_;
  int32_t step_ = 0;
  std::vector<std::string> calls_;
  std::vector<std::pair<Action, Message>> posted_;  // messages that are to be completed
};

}  // namespace trireme
