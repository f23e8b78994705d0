#include "trireme/base/one_line.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(OneLine, ShowsControlCharactersByTheirNumbers) {
  EXPECT_EQ(one_line("a\nb\x1b[31mc\x7f"), "a\\x0ab\\x1b[31mc\\x7f");
  EXPECT_EQ(one_line("na\xc3\xafve"), "na\xc3\xafve");
}

TEST(OneLine, CutsWhatCannotBeRead) {
  EXPECT_EQ(one_line(std::string(2000, 'x')), std::string(2000, 'x'));
  EXPECT_EQ(one_line(std::string(2001, 'x')), std::string(2000, 'x') + " [cut]");
}

TEST(OneLine, QuotesAWordOfAnyLength) {
  EXPECT_EQ(in_quotes("F\t3"), "\"F\\x093\"");
  EXPECT_EQ(in_quotes(std::string(100'000, 'F')), "\"" + std::string(60, 'F') + " [cut]\"");
}

}  // namespace
}  // namespace trireme
