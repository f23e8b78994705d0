// `trireme profile`: refuses a wrong request, and becomes the worker that measures.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"

namespace trireme {

// Returns only with an error: the request or the model is wrong, or the worker cannot be run.
// `arguments` are handed to it as they are.
[[nodiscard]] Error launch_profile(ProfileRequest request,
                                   const std::vector<std::string>& arguments,
                                   const std::string& worker_path);

// The file to write is none, or a profile: the path may be a slip.
[[nodiscard]] Status check_profile_output(const ProfileRequest& request);

}  // namespace trireme
