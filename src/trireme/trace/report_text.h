// A timeline for people and programs: the table for a terminal, JSON, one HTML page, and the trace
// format of Chrome and Perfetto.
//
// `prediction` is the timeline that a simulator made of the same run, or nullptr: times are then
// compared by mean step.
#pragma once

#include <string>

#include "trireme/trace/statistics.h"
#include "trireme/trace/timeline.h"

namespace trireme {

// How far a prediction is off, per step: of each slice, the mean over the ranks. An evaluation is
// no part of a step: its slice is 0.
struct Comparison {
  SimTime predicted_step = 0;
  SimTime measured_step = 0;
  double step_error = 0;                                 // (predicted - measured) / measured
  std::array<double, kNumSlices> predicted_slices = {};  // nanoseconds a step and rank
  std::array<double, kNumSlices> measured_slices = {};
};

// REQUIRES: both are of as many ranks, and neither is empty.
[[nodiscard]] Comparison compare(const TimelineStatistics& measured,
                                 const TimelineStatistics& predicted);

// "1.234 ms", "12.3 us": three to four digits that can be read.
[[nodiscard]] std::string time_text(double nanoseconds);

[[nodiscard]] std::string report_table(const Timeline& timeline, const Timeline* prediction);
[[nodiscard]] std::string report_json(const Timeline& timeline, const Timeline* prediction);
// Needs neither network nor other files.
[[nodiscard]] std::string report_page(const Timeline& timeline, const Timeline* prediction,
                                      const std::string& title);
[[nodiscard]] std::string chrome_trace(const Timeline& timeline);

}  // namespace trireme
