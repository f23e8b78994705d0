// Which dtypes of data feed which dtypes of inputs: equal ones, integers of any width where each
// number fits, and bool from bytes that are 0 or 1. Everything else is the user's to convert.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"

namespace trireme {

[[nodiscard]] bool is_integer(DType dtype);  // bool is none
[[nodiscard]] bool is_convertible(DType from, DType to);

// Writes the numbers of `from` in the other dtype. The error is the first number that does not fit,
// as "300 does not fit u8 (0 to 255)". Neither side needs to be aligned.
// REQUIRES: is_convertible, and as many numbers on both sides.
[[nodiscard]] Status convert_numbers(std::span<const std::byte> from, DType from_dtype,
                                     std::span<std::byte> to, DType to_dtype);

}  // namespace trireme
