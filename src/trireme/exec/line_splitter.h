// LineSplitter: cuts what a worker prints into lines that carry its rank.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

class LineSplitter {
 public:
  // `prefix` begins every line: "[rank 2] ".
  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that these bytes complete, each with prefix and newline. A carriage return ends a
  // line too (progress bars of other programs); empty lines are dropped, and a line that never
  // ends is cut, so that it cannot fill the memory.
  [[nodiscard]] std::string add(std::string_view bytes) {
    std::string lines;
    for (const char c : bytes) {
      if (c == '\n' || c == '\r') {
        lines += end();
      } else {
        rest_ += c;
        if (rest_.size() >= kMaxLineBytes) lines += end();
      }
    }
    return lines;
  }
  // The line that has been begun.
  [[nodiscard]] std::string end() {
    if (rest_.empty()) return "";
    return prefix_ + std::exchange(rest_, {}) + "\n";
  }

 private:
  static constexpr size_t kMaxLineBytes = size_t{1} << 16;

  std::string prefix_;
  std::string rest_;
};

}  // namespace trireme
