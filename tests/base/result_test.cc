#include "markbase/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace markbase {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return base::bad_input("{}: expected an even number, got {}", "here", n);
  return n / 2;
}

Result<void> check_half(int n) {
  MB_TRY(half(n));
  return {};
}

Result<int> quarter(int n) {
  MB_ASSIGN(const int h, half(n));
  MB_ASSIGN(const int q, half(h));
  return q;
}

Result<std::unique_ptr<int>> owned(int n) {
  MB_ASSIGN(auto box, Result<std::unique_ptr<int>>(std::make_unique<int>(n)));
  return box;
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half(8), 4);
  EXPECT_TRUE(half(8));
  const Result<int> bad = half(3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(bad.error().message, "here: expected an even number, got 3");
}

TEST(Result, MacrosPassErrorsOn) {
  EXPECT_TRUE(check_half(2).ok());
  EXPECT_EQ(check_half(3).error().message, "here: expected an even number, got 3");
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "here: expected an even number, got 3");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = owned(5);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> box = *std::move(result);
  EXPECT_EQ(*box, 5);
}

TEST(Result, ErrorMakersCarryTheirCode) {
  EXPECT_EQ(base::failed("x").code, ErrorCode::kFailed);
  EXPECT_EQ(base::usage_error("x").code, ErrorCode::kUsage);
  EXPECT_EQ(base::bad_input("x").code, ErrorCode::kBadInput);
  EXPECT_EQ(base::out_of_memory("{}", 7).message, "7");
}

TEST(ResultDeathTest, TheValueOfAnErrorAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Result<int> bad = half(1);
  EXPECT_DEATH(static_cast<void>(bad.value()), "");
}

}  // namespace
}  // namespace markbase
