// What every test of a damaged archive asks of the reader.
#pragma once

#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "trireme/import/archive.h"

namespace trireme {

inline std::string zoo(std::string_view name) {
  return std::string(TRIREME_TEST_DATA) + "/zoo/" + std::string(name) + ".pt2";
}

// A message that a user can read: one line that names the file, no tag of a library, no full stop.
inline void expect_readable(const std::string& message, const std::string& path) {
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  EXPECT_LT(message.size(), 2100u) << message;
  EXPECT_NE(message.back(), '.') << message;
  for (const char c : message) {
    EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
  }
}

// Opens the archive and reads all that it says it has. Returns the error, or "" when there is none:
// what is read then has to be a graph like any other.
inline std::string open_and_read(const std::string& path) {
  const Result<Archive> archive = Archive::open(path);
  if (!archive.ok()) {
    expect_readable(archive.error().message, path);
    return archive.error().message;
  }
  const Graph& graph = archive.value().graph();
  const std::string text = to_text(graph);
  const Result<Graph> again = parse_graph(text);
  EXPECT_TRUE(again.ok()) << again.error().message << "\n" << text;
  if (again.ok()) {
    EXPECT_EQ(to_text(again.value()), text);
  }
  for (const GraphInput& input : graph.inputs) {
    const StoredTensor* stored = archive.value().find_tensor(input.names[0]);
    if (stored == nullptr) continue;
    const auto bytes = archive.value().read_storage(*stored);
    if (!bytes.ok()) {
      expect_readable(bytes.error().message, path);
      return bytes.error().message;
    }
  }
  return "";
}

// Of random tests: TRIREME_SEED, or always the same.
inline uint64_t test_seed() {
  const char* text = std::getenv("TRIREME_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

}  // namespace trireme
