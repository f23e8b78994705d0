#include "trireme/base/result.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error{"odd"};
  return number / 2;
}

Status both(int first, int second, int& sum) {
  TRIREME_TRY(int a, half(first));
  TRIREME_TRY(int b, half(second));
  sum = a + b;
  return Status();
}

Status outer(int number) {
  int sum = 0;
  TRIREME_TRY(both(number, 2, sum));
  return Status();
}

TEST(Result, TryBindsValuesAndReturnsTheFirstError) {
  int sum = 0;
  EXPECT_TRUE(both(4, 6, sum).ok());
  EXPECT_EQ(sum, 5);
  EXPECT_EQ(both(4, 7, sum).error().message, "odd");
  EXPECT_EQ(outer(3).error().message, "odd");
  EXPECT_TRUE(outer(2).ok());
}

TEST(Result, WhileDoingPutsTheContextFirst) {
  EXPECT_EQ(while_doing("reading a", Error{"b"}).message, "reading a: b");
}

}  // namespace
}  // namespace trireme
