// Unix sockets in the abstract name space, which pass file descriptors between processes.
//
// A name is seen by all of one kernel and one network name space, and by nobody else: whoever
// reaches a name that was drawn at random is on the same host, whatever addresses say. It ends with
// its socket; nothing is left in the file system. No socket here blocks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "trireme/base/result.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

// REQUIRES of both: a name of 1 to kMaxLocalName characters.
inline constexpr size_t kMaxLocalName = 100;
[[nodiscard]] Result<FileDescriptor> listen_locally(const std::string& name);
// Not open where nobody here listens.
[[nodiscard]] FileDescriptor connect_locally(const std::string& name);

// As ::send(), with copies of `passed` for the other side. REQUIRES: at most kMaxPassed.
inline constexpr size_t kMaxPassed = 2;
ssize_t send_passing(int socket, std::span<const std::byte> bytes, std::span<const int> passed);
// As ::recv(), adding to `passed` what comes with the bytes. Of more than kMaxPassed at once the
// kernel closes the rest.
ssize_t receive_passed(int socket, std::span<std::byte> bytes, std::vector<FileDescriptor>& passed);

}  // namespace trireme
