// ScratchDirectory: a directory for the files of one test, removed with all that is in it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/base/check.h"

namespace trireme {

class ScratchDirectory {
 public:
  ScratchDirectory() : path_(testing::TempDir() + "trireme_XXXXXX") {
    TRIREME_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary directory can be made");
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  [[nodiscard]] std::string path(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  // Writes the file, with the directories on its way, and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    // File systems wait for the disk when a file is cut and written again.
    std::filesystem::remove(file);
    std::ofstream(file, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return file.string();
  }

 private:
  std::string path_;
};

// The bytes of numbers, as they lie in memory.
template <typename T>
[[nodiscard]] std::string bytes_of(std::span<const T> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}
template <typename T>
[[nodiscard]] std::string bytes_of(std::initializer_list<T> numbers) {
  return bytes_of(std::span<const T>(numbers.begin(), numbers.size()));
}

}  // namespace trireme
