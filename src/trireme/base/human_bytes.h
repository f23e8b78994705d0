// Bytes for people: "950 B", "1234.5 kB", "12.3 GB".
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace trireme {

[[nodiscard]] inline std::string human_bytes(int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace trireme
