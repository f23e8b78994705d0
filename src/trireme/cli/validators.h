// What an option's text must be. A validator's error says what the text is not; CLI11 puts the
// option before it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

namespace trireme {

[[nodiscard]] CLI::Validator whole_number(int64_t least,
                                          int64_t most = std::numeric_limits<int64_t>::max());
[[nodiscard]] CLI::Validator positive();
// Of what is counted in 32 bits.
[[nodiscard]] CLI::Validator positive_count();
[[nodiscard]] CLI::Validator number();
[[nodiscard]] CLI::Validator not_empty();
// "30s", "2m", "1.5h", or seconds without a unit; up to 1e6 seconds.
[[nodiscard]] CLI::Validator duration();
// Of such a text, in seconds.
[[nodiscard]] double seconds_of_duration(const std::string& text);
// A regular expression of a length that the C library, which compiles it recursively, can take.
[[nodiscard]] CLI::Validator expression();

// "A=B".
struct Pair {
  std::string first;
  std::string second;
};
[[nodiscard]] Pair split_pair(const std::string& text);
// `form` says what is expected: "VALUES=OFFSETS".
[[nodiscard]] CLI::Validator pair_of(const std::string& form);

}  // namespace trireme
