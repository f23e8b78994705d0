// PassTimer: kernels that pass every call on to others and time their passes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "trireme/exec/kernels.h"

namespace trireme {

class PassTimer : public Kernels {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // They outlive the timer.
  explicit PassTimer(Kernels& inner, std::function<Time()> now = std::chrono::steady_clock::now)
      : inner_(inner), now_(std::move(now)) {}

  Status compute(const Action& action) override;
  void announce_to(OnFinal on_final) override { inner_.announce_to(std::move(on_final)); }
  Result<Message> message(const Action& action) override { return inner_.message(action); }
  Status complete(const Action& action) override { return inner_.complete(action); }

  // Seconds of a pass of this kind, in the mean of those since the last call of it for the kind; 0
  // where there were none. What a pass issues while it runs is in it.
  [[nodiscard]] double take_mean(ActionKind kind);

 private:
  struct Sum {
    std::chrono::duration<double> time{0};
    int64_t count = 0;
  };
  Kernels& inner_;
  std::function<Time()> now_;
  std::array<Sum, kNumActionKinds> sums_;
};

}  // namespace trireme
