// What the fuzz targets share. A target is one file that defines LLVMFuzzerTestOneInput and one row
// of CMakeLists.txt; its seeds, and every input that once was a finding, lie in corpus/NAME.
//
// A target hands bytes to a reader and asks what must hold for all bytes: it neither crashes nor
// hangs, refuses in one readable sentence, and what it accepts survives its text form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/check.h"
#include "trireme/base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trireme::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A message for a person: one line without a full stop, of a size that can be read.
inline void expect_readable(std::string_view message) {
  TRIREME_CHECK(!message.empty(), "a message is empty");
  TRIREME_CHECK(message.size() < 2100, message);
  TRIREME_CHECK(message.back() != '.', message);
  for (const char each : message) TRIREME_CHECK(static_cast<uint8_t>(each) >= 0x20, message);
}

template <typename R>
bool is_accepted(const R& result) {
  if (!result.ok()) expect_readable(result.error().message);
  return result.ok();
}

// A text form and its parser are inverses.
template <typename Value, typename Parse>
void expect_text_form(const Value& value, Parse parse) {
  const std::string text = to_text(value);
  const auto again = parse(text);
  TRIREME_CHECK(again.ok(), again.ok() ? "" : again.error().message + "\n" + text);
  TRIREME_CHECK(to_text(again.value()) == text, text);
}

// A file that has no place on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", 0)) {
    TRIREME_CHECK(descriptor_ >= 0, "no memory file");
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    TRIREME_CHECK(written == static_cast<ssize_t>(bytes.size()), "a memory file is not written");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace trireme::fuzz
