#include "base/repeated_key.h"

#include <gtest/gtest.h>

namespace markbase::base {
namespace {

TEST(RepeatedKey, IsFoundAtAnyDepth) {
  EXPECT_EQ(repeated_key(R"({"a":1,"b":{"a":[{"a":2},{"a":3}]}})"), std::nullopt);
  EXPECT_EQ(repeated_key(R"("a")"), std::nullopt);
  EXPECT_EQ(repeated_key(R"({"a":1,"a":1})"), "a");
  EXPECT_EQ(repeated_key(R"({"a":1,"b":[{"x":1,"\u0078":2}]})"), "x");
  EXPECT_EQ(repeated_key(R"([{"":1,"":2}])"), "");
  EXPECT_EQ(repeated_key(R"({"a":{"b":1},"b":{"a":1},"a":0})"), "a");
}

TEST(RepeatedKey, IsNamedInTheError) {
  EXPECT_TRUE(check_no_repeated_key(R"({"a":1})", "tools").ok());
  const Result<void> named = check_no_repeated_key(R"({"a\n":1,"a\n":1})", "tools");
  ASSERT_FALSE(named.ok());
  EXPECT_EQ(named.error().code, ErrorCode::kUsage);
  EXPECT_EQ(named.error().message, R"(tools: "a\n": expected once in an object, got twice)");
  EXPECT_EQ(check_no_repeated_key(R"({"a":1,"a":1})").error().message,
            R"("a": expected once in an object, got twice)");
}

}  // namespace
}  // namespace markbase::base
