// picture: a schedule as the drawing that papers print, an SVG: a lane a rank, a box a pass, to
// scale, coloured by its kind and with the number of its micro-batch; later chunks are paler. Costs
// and waits are those of a timetable.
#pragma once

#include <string>

#include "trireme/schedule/schedule.h"
#include "trireme/schedule/timetable.h"

namespace trireme {

// One <svg> element of a page's width; no scripts, no other files. REQUIRES: verified.
[[nodiscard]] std::string svg_picture(const Schedule& schedule, const PassCosts& costs);

}  // namespace trireme
