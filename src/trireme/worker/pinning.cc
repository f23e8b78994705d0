#include "trireme/worker/pinning.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <sched.h>

#include <fmt/format.h>

namespace trireme {

Status pin_to_cores(int32_t place, int32_t num_threads) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return Error{
        fmt::format("--pin: cannot read the cores of this process: {}", std::strerror(errno))};
  }
  std::vector<size_t> cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int32_t thread = 0; thread < num_threads; ++thread) {
    const auto index = static_cast<size_t>(int64_t{place} * num_threads + thread);
    CPU_SET(cores[index % cores.size()], &own);
  }
  if (::sched_setaffinity(0, sizeof(own), &own) == 0) return Status();
  return Error{fmt::format("--pin: cannot bind rank to its cores: {}", std::strerror(errno))};
}

}  // namespace trireme
