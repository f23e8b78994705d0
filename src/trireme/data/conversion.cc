#include "trireme/data/conversion.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

template <typename From, typename To>
Status convert_integers(std::span<const std::byte> from, std::span<std::byte> to, DType to_dtype,
                        To lowest, To highest) {
  const size_t count = from.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    From number = 0;
    std::memcpy(&number, from.data() + i * sizeof(From), sizeof(From));
    if (std::cmp_less(number, lowest) || std::cmp_greater(number, highest)) {
      return Error{fmt::format("{} does not fit {} ({} to {})", number, dtype_info(to_dtype).name,
                               lowest, highest)};
    }
    const auto converted = static_cast<To>(number);
    std::memcpy(to.data() + i * sizeof(To), &converted, sizeof(To));
  }
  return Status();
}

// Calls `function` with a zero of the C++ type of an integer dtype.
template <typename Function>
Status with_integer(DType dtype, Function function) {
  switch (dtype) {
    case DType::kUint8:
      return function(uint8_t{0});
    case DType::kInt8:
      return function(int8_t{0});
    case DType::kInt16:
      return function(int16_t{0});
    case DType::kUint16:
      return function(uint16_t{0});
    case DType::kInt32:
      return function(int32_t{0});
    case DType::kUint32:
      return function(uint32_t{0});
    case DType::kInt64:
      return function(int64_t{0});
    case DType::kUint64:
      return function(uint64_t{0});
    default:
      check_failed(__FILE__, __LINE__, "is_integer(dtype)", "only integers are converted");
  }
}

}  // namespace

bool is_integer(DType dtype) { return !dtype_info(dtype).is_floating && dtype != DType::kBool; }

bool is_convertible(DType from, DType to) {
  return from == to || (is_integer(from) && is_integer(to)) ||
         (from == DType::kUint8 && to == DType::kBool);
}

Status convert_numbers(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to,
                       DType to_dtype) {
  TRIREME_CHECK(is_convertible(from_dtype, to_dtype), "the dtypes were checked before");
  TRIREME_CHECK(from.size() / static_cast<size_t>(dtype_info(from_dtype).size_bytes) ==
                    to.size() / static_cast<size_t>(dtype_info(to_dtype).size_bytes),
                "as many numbers are written as are read");
  // A bool that is neither 0 nor 1 is undefined behaviour wherever it is read: checked as well.
  if (to_dtype == DType::kBool) {
    return convert_integers<uint8_t, uint8_t>(from, to, to_dtype, 0, 1);
  }
  if (from_dtype == to_dtype) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return Status();
  }
  return with_integer(from_dtype, [&]<typename From>(From) {
    return with_integer(to_dtype, [&]<typename To>(To) {
      return convert_integers<From, To>(from, to, to_dtype, std::numeric_limits<To>::min(),
                                        std::numeric_limits<To>::max());
    });
  });
}

}  // namespace trireme
