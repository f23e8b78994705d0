#include "trireme/cli/open_files.h"

#include <sys/resource.h>

#include <fmt/format.h>

namespace trireme {

Status allow_open_files(int64_t num_files) {
  rlimit limit{};
  const auto needed = static_cast<rlim_t>(num_files);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return Status();
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = needed;
  if (limit.rlim_max >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return Status();
  return Error{
      fmt::format("a process of this run needs {} open files, but may have {}; raise the limit "
                  "(ulimit -n), or use fewer ranks",
                  num_files, before)};
}

}  // namespace trireme
