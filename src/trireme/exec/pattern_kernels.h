// PatternKernels: kernels for tests. They compute nothing, send numbers that tell what they are,
// check that what arrives is what it should be, and record every call.
#pragma once

#include <cstdint>
#include <optional>
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
  void announce_to(OnFinal on_final) override { on_final_ = std::move(on_final); }
  // In each last pass that makes gradients these buckets are announced, in this order.
  void announce(std::vector<int32_t> buckets) { announced_ = std::move(buckets); }
  Result<Message> message(const Action& action) override;
  // Fails when the message holds another pattern than its sender's, or another sum.
  Status complete(const Action& action) override;
  // Messages have sizes that follow from this, up to some 300 KB, instead of a few bytes each. All
  // ranks have the same.
  void size_by(uint32_t seed) { size_seed_ = seed; }
  // What was of the next batch is of this one now. Call it after each step.
  void end_step() { ++step_; }

  // One line a call: "F0", "message RA1", "complete RA1". Where buckets are announced, "end B1"
  // comes behind what the executor has made of it.
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }

 private:
  using Parts = std::vector<std::vector<std::byte>>;

  const Schedule& schedule_;
  int32_t rank_;
  int32_t step_ = 0;
  std::optional<uint32_t> size_seed_;
  OnFinal on_final_;
  std::vector<int32_t> announced_;
  std::vector<std::string> calls_;
  std::vector<std::pair<Action, Message>> posted_;  // messages that are to be completed
};

}  // namespace trireme
