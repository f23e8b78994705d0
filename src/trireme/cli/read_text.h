// read_text(): a file, parsed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trireme/base/result.h"
#include "trireme/import/mapped_file.h"

namespace trireme {

// The error names the file.
template <typename Value>
[[nodiscard]] Result<Value> read_text(const std::string& path,
                                      Result<Value> (*parse)(std::string_view)) {
  TRIREME_TRY(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  Result<Value> value = parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return value.ok() ? std::move(value) : while_doing(path, value.error());
}

}  // namespace trireme
