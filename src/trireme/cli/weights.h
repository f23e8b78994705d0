// Whether a run has a value for each parameter and buffer: from --init, else from the archive.
//
// An archive with all its weights gives way to --init as a whole: a name that --init lacks is a
// mistake. In an archive without some of them (trireme.empty_weights()), a parameter that has
// values was given them on purpose: it keeps them where --init lacks it.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/base/result.h"
#include "trireme/cli/run_setup.h"

namespace trireme {

// Maps what is needed of `setup.initial`: by `rank`, or by all ranks. Errors: values are missing,
// unknown, of another shape or type, or differ between the names of a tied parameter.
[[nodiscard]] Status prepare_weights(RunSetup& setup, std::optional<int32_t> rank);

}  // namespace trireme
