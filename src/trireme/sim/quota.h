// Quota: a processor that may be used for so much of each period, at full speed until then and not
// at all after that, as Linux limits the processes of a cgroup (cpu.max; Turner et al., "CPU
// bandwidth control for CFS", 2010). What is not used of a period is lost.
//
//   period    |----------|----------|
//   of it     4          4
//   work of 6 ####......##              from the begin of a period: done 2 into the next one
//   work of 6     ####......##          after a wait of 4: no time was lost by waiting
#pragma once

#include "trireme/base/sim_time.h"

namespace trireme {

class Quota {
 public:
  // All of the processor.
  Quota() = default;
  // REQUIRES: 0 < of_period <= period.
  Quota(SimTime period, SimTime of_period) : period_(period), of_period_(of_period) {}

  // When work that begins now is done; periods begin at 0. REQUIRES: no earlier than the last work.
  [[nodiscard]] SimTime end_of(SimTime begin, SimTime work) const;
  // The same, and what it has used is used.
  SimTime use(SimTime begin, SimTime work);

 private:
  struct Used {
    SimTime end = 0;
    SimTime period = 0;     // the number of the one in which it ends
    SimTime in_period = 0;  // what it has used of that
  };
  [[nodiscard]] Used after(SimTime begin, SimTime work) const;

  SimTime period_ = 1;
  SimTime of_period_ = 1;
  Used last_;
};

}  // namespace trireme
