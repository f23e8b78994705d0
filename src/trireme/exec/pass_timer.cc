#include "trireme/exec/pass_timer.h"

namespace trireme {

Status PassTimer::compute(const Action& action) {
  const Time begin = now_();
  Status status = inner_.compute(action);
  Sum& sum = sums_[static_cast<size_t>(action.kind)];
  sum.time += now_() - begin;
  ++sum.count;
  return status;
}

double PassTimer::take_mean(ActionKind kind) {
  const Sum sum = std::exchange(sums_[static_cast<size_t>(kind)], Sum());
  return sum.count == 0 ? 0 : sum.time.count() / static_cast<double>(sum.count);
}

}  // namespace trireme
