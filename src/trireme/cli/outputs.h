// Refuses before a run what would fail at its end: files that cannot be written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/cli/request.h"
#include "trireme/exec/file_descriptor.h"

namespace trireme {

// Where `path` is to be written: in place, or as a new file that takes its name at the end; kWhole
// is write_whole()'s way, a device or pipe in place and a file replaced.
enum class WriteKind { kInPlace, kReplaced, kWhole };

// Error when the folder of `path` is missing or no file can be made in it, or when `path` is there
// and cannot be written so: a folder, a pipe with a name; where it is to be replaced, a device.
// Leaves all files as they are. `option` is named in the message: "--metrics".
[[nodiscard]] Status check_writable(const std::string& option, const std::string& path,
                                    WriteKind kind);

// The path may be a slip: error where there is a file that is not empty and that `reads` does not
// take for a `what`, such as "plan".
[[nodiscard]] Status check_replaces(const std::string& option, const std::string& path,
                                    std::string_view what, bool (*reads)(std::string_view));

// A file that a request names, and the option that names it.
struct NamedFile {
  std::string option;
  std::string path;
};

// Error when an output is a file that is read, or lies in a folder that is, or is an output before
// it. Files that do not exist yet are compared by name; devices and pipes may be named more than
// once.
[[nodiscard]] Status check_distinct(const std::vector<NamedFile>& outputs,
                                    const std::vector<NamedFile>& inputs);

// Opens `path` for writing and makes the file if there is none. While it is open, no other run
// opens it so: error, and the file stays as it is.
[[nodiscard]] Result<FileDescriptor> open_alone(const std::string& option, const std::string& path);

// All output files of the request. Of the rank that writes, and of `trireme train`.
[[nodiscard]] Status check_outputs(const RunRequest& request);

}  // namespace trireme
