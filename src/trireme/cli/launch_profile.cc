#include "trireme/cli/launch_profile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include <fmt/format.h>

#include "trireme/cli/outputs.h"
#include "trireme/cli/run_setup.h"
#include "trireme/cost/profile.h"

namespace trireme {

Status check_profile_output(const ProfileRequest& request) {
  const std::string& path = request.output;
  TRIREME_TRY(check_distinct({{"-o", path}}, {{"MODEL", request.run.model}}));
  TRIREME_TRY(check_writable("-o", path, WriteKind::kWhole));
  return check_replaces("-o", path, "profile",
                        [](std::string_view text) { return parse_profile(text).ok(); });
}

Error launch_profile(ProfileRequest request, const std::vector<std::string>& arguments,
                     const std::string& worker_path) {
  if (const Status fits = check_profile_output(request); !fits.ok()) return fits.error();
  if (const auto setup = make_profile_setup(request); !setup.ok()) return setup.error();
  // What a supervisor gives its workers (exec/supervisor.h): threads that wait do not spin.
  ::setenv("OMP_NUM_THREADS", std::to_string(request.run.threads).c_str(), 1);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  std::vector<std::string> words = {worker_path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(worker_path.c_str(), pointers.data());
  return Error{fmt::format("cannot run {}: {}", worker_path, std::strerror(errno))};
}

}  // namespace trireme
