#include "trireme/sim/quota.h"

#include <algorithm>

namespace trireme {

Quota::Used Quota::after(SimTime begin, SimTime work) const {
  if (of_period_ == period_) return {.end = begin + work};
  const SimTime period = begin / period_;
  const SimTime period_begin = period * period_;
  const SimTime used = period == last_.period ? last_.in_period : 0;
  // Of this period there is left what is not used, and not past.
  const SimTime here = std::min(of_period_ - used, period_begin + period_ - begin);
  if (work <= here) return {.end = begin + work, .period = period, .in_period = used + work};
  const SimTime rest = work - here - 1;
  const SimTime last = period + 1 + rest / of_period_;
  const SimTime in_last = rest % of_period_ + 1;
  return {.end = last * period_ + in_last, .period = last, .in_period = in_last};
}

SimTime Quota::end_of(SimTime begin, SimTime work) const { return after(begin, work).end; }

SimTime Quota::use(SimTime begin, SimTime work) {
  last_ = after(begin, work);
  return last_.end;
}

}  // namespace trireme
