// Timelines as files: the text form, and the parts that the ranks of a run record (recorder.h).
//
//   run.timeline          the whole, once a run is over
//   run.timeline.rank0    the part of rank 0 while it runs, and after it was killed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/trace/timeline.h"

namespace trireme {

// The path of a rank's part of the timeline `path`.
[[nodiscard]] std::string part_path(const std::string& path, int32_t rank);

// The timeline of the parts, which are those of one run, in any order; some may be missing, as
// where a rank never came. Clocks of hosts are aligned (clocks.h), time begins with the first
// event. The steps of which a ring has lost events are left out and counted as dropped.
// Error: a part that is none, or of another run.
[[nodiscard]] Result<Timeline> join_parts(const std::vector<std::span<const std::byte>>& parts);

// The same of the files beside `path` that a run has left. Error when there are none.
[[nodiscard]] Result<Timeline> join_part_files(const std::string& path);
// Removes them; `path` itself stays.
void remove_part_files(const std::string& path);

// Reads a timeline: the file, or where there is none, the parts of a run that was killed.
[[nodiscard]] Result<Timeline> read_timeline(const std::string& path);
// Writes the text form, under another name until it is whole.
[[nodiscard]] Status write_timeline(const std::string& path, const Timeline& timeline);

}  // namespace trireme
