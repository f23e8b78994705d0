// Paths that are written to: where a link leads, and whether a file can be made there.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/result.h"

namespace trireme {

// The file that a chain of symbolic links ends at, which need not exist.
[[nodiscard]] std::string behind_links(const std::string& path);

// The name beside `path` of a file that takes its place in the end.
[[nodiscard]] std::string temporary_name(const std::string& path);

// Makes the folder of `path` where it is missing: it was there when the run began. Whoever opens
// the file then says what is wrong.
void restore_folder(const std::string& path);

// Makes a file of this name, which none has, and removes it. Error: what the system says, as in
// "Permission denied".
[[nodiscard]] Status check_creatable(const std::string& path);

// Writes `text` as the file `path`, whole or not at all: beside it, then under its name. A device
// or a pipe is written as it is.
[[nodiscard]] Status write_whole(const std::string& path, std::string_view text);

}  // namespace trireme
