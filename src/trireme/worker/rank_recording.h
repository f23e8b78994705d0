// `--timeline`: each rank records its last steps in a part of its own (trace/recorder.h), and rank
// 0 joins the parts of all at the end. What a run that fails leaves is joined by its supervisor,
// or by `trireme report`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"
#include "trireme/exec/transport.h"
#include "trireme/trace/recorder.h"

namespace trireme {

// Null without --timeline. `schedule` is that of a whole step.
[[nodiscard]] Result<std::unique_ptr<Recorder>> start_recording(const RunSetup& setup, int32_t rank,
                                                                const Schedule& schedule);

// Of all ranks, between two steps. Rank 0 writes the file; each removes its part. What rank 0
// cannot write takes no training away: a sentence about it, empty where nothing was wrong.
// `peak_bytes`: by rank, where rank 0 knows them.
[[nodiscard]] Result<std::string> gather_timeline(const RunSetup& setup, int32_t rank,
                                                  const Recorder& recorder, Transport& transport,
                                                  const std::vector<int64_t>& peak_bytes);

}  // namespace trireme
