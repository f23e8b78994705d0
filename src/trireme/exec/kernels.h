// Kernels: what a rank computes, as the executor sees it. Implementations: StageKernels in torch/,
// and recording kernels in tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"
#include "trireme/schedule/schedule.h"

namespace trireme {

// The memory of one communication action, one span a tensor (or one for a reduction). `owner` keeps
// the memory alive; the executor holds it until the transfer is complete.
struct Message {
  std::vector<std::span<std::byte>> parts;
  DType dtype = DType::kUint8;  // of a reduction: kFloat32 or kFloat64
  std::shared_ptr<void> owner;
};

class Kernels {
 public:
  // Hears of an AR whose gradients no pass of its batch will change any more.
  using OnFinal = std::function<void(const Action& reduction)>;

  virtual ~Kernels() = default;

  // Runs a compute action. The receives it needs are complete.
  virtual Status compute(const Action& action) = 0;
  // From now on: whom compute() tells, in its thread, of each AR at most once, and of its batch as
  // of the pass at hand. It may call message(). What is not told is final after the last pass.
  // Null: no one. Kernels that do not know need not tell.
  virtual void announce_to(OnFinal /*on_final*/) {}
  // The memory of a communication action: what SA and SG send, what RA and RG fill, what AR, TR and
  // SC sum in place. A receive may be asked for long before its data is needed.
  virtual Result<Message> message(const Action& action) = 0;
  // The communication is complete and its memory is valid. Not called for sends.
  virtual Status complete(const Action& action) = 0;
};

}  // namespace trireme
