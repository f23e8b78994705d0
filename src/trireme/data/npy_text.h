// npy(): a small .npy file as text, for tests.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trireme/import/scratch_directory.h"

namespace trireme {

inline std::string npy(std::string_view descr, std::string_view shape, std::string_view data) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  const auto size = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + bytes_of<uint16_t>({size}) + header +
         std::string(data);
}

}  // namespace trireme
