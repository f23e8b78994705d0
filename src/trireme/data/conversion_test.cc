#include "trireme/data/conversion.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

template <typename To, typename From>
Result<std::vector<To>> convert(const std::vector<From>& numbers, DType from, DType to) {
  // Not aligned on either side, as in a file.
  std::vector<std::byte> input(numbers.size() * sizeof(From) + 1);
  std::ranges::copy(std::as_bytes(std::span(numbers)), input.begin() + 1);
  std::vector<std::byte> output(numbers.size() * sizeof(To) + 1);
  TRIREME_TRY(convert_numbers(std::span(input).subspan(1), from, std::span(output).subspan(1), to));
  std::vector<To> converted(numbers.size());
  std::memcpy(converted.data(), output.data() + 1, numbers.size() * sizeof(To));
  return converted;
}

TEST(Conversion, WidensAndNarrowsIntegersThatFit) {
  EXPECT_EQ(
      (convert<int64_t>(std::vector<uint16_t>{0, 1, 65535}, DType::kUint16, DType::kInt64).value()),
      (std::vector<int64_t>{0, 1, 65535}));
  EXPECT_EQ(
      (convert<int8_t>(std::vector<int64_t>{-128, -1, 127}, DType::kInt64, DType::kInt8).value()),
      (std::vector<int8_t>{-128, -1, 127}));
  EXPECT_EQ((convert<uint64_t>(std::vector<int32_t>{7}, DType::kInt32, DType::kUint64).value()),
            (std::vector<uint64_t>{7}));
}

TEST(Conversion, KeepsEqualDTypesBitByBit) {
  const std::vector<float> numbers{1.5F, -0.0F, std::numeric_limits<float>::infinity()};
  EXPECT_EQ((convert<float>(numbers, DType::kFloat32, DType::kFloat32).value()), numbers);
}

TEST(Conversion, RefusesTheFirstNumberThatDoesNotFit) {
  EXPECT_EQ((convert<uint8_t>(std::vector<int32_t>{255, 256, -1}, DType::kInt32, DType::kUint8)
                 .error()
                 .message),
            "256 does not fit u8 (0 to 255)");
  EXPECT_EQ(
      (convert<uint64_t>(std::vector<int64_t>{-1}, DType::kInt64, DType::kUint64).error().message),
      "-1 does not fit u64 (0 to 18446744073709551615)");
  EXPECT_EQ((convert<int64_t>(std::vector<uint64_t>{1ULL << 63}, DType::kUint64, DType::kInt64)
                 .error()
                 .message),
            "9223372036854775808 does not fit i64 (-9223372036854775808 to 9223372036854775807)");
  EXPECT_EQ(
      (convert<int8_t>(std::vector<uint8_t>{128}, DType::kUint8, DType::kInt8).error().message),
      "128 does not fit i8 (-128 to 127)");
}

TEST(Conversion, MakesBoolOfZeroAndOneOnly) {
  EXPECT_EQ((convert<uint8_t>(std::vector<uint8_t>{0, 1}, DType::kUint8, DType::kBool).value()),
            (std::vector<uint8_t>{0, 1}));
  for (const DType from : {DType::kUint8, DType::kBool}) {
    EXPECT_EQ((convert<uint8_t>(std::vector<uint8_t>{1, 2}, from, DType::kBool).error().message),
              "2 does not fit bool (0 to 1)");
  }
}

TEST(Conversion, IsOfferedBetweenIntegersAndEqualDTypesOnly) {
  EXPECT_TRUE(is_convertible(DType::kInt32, DType::kInt64));
  EXPECT_TRUE(is_convertible(DType::kBFloat16, DType::kBFloat16));
  EXPECT_TRUE(is_convertible(DType::kUint8, DType::kBool));
  EXPECT_FALSE(is_convertible(DType::kInt64, DType::kBool));
  EXPECT_FALSE(is_convertible(DType::kBool, DType::kUint8));
  EXPECT_FALSE(is_convertible(DType::kFloat64, DType::kFloat32));
  EXPECT_FALSE(is_convertible(DType::kFloat32, DType::kFloat64));
  EXPECT_FALSE(is_convertible(DType::kInt32, DType::kFloat32));
  EXPECT_FALSE(is_convertible(DType::kFloat32, DType::kInt32));
}

}  // namespace
}  // namespace trireme
