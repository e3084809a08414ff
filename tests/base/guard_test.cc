#include "base/guard.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"

namespace markbase::base {
namespace {

TEST(Guard, PassesValuesAndErrorsOn) {
  EXPECT_EQ(*guarded("here", [] { return Result<int>(7); }), 7);
  EXPECT_TRUE(guarded("here", [] { return Result<void>(); }).ok());
  const auto owned =
      guarded("here", [] { return Result<std::unique_ptr<int>>(std::make_unique<int>(3)); });
  EXPECT_EQ(**owned, 3);
  const auto refused = guarded("here", []() -> Result<int> { return usage_error("no {}", 1); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message, "no 1");
}

TEST(Guard, TurnsWhatIsThrownIntoErrors) {
  const auto no_memory = guarded("Engine::load", []() -> Result<int> { throw std::bad_alloc(); });
  ASSERT_FALSE(no_memory.ok());
  EXPECT_EQ(no_memory.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(no_memory.error().message, "Engine::load: out of memory");

  const auto failed =
      guarded("Engine::load", []() -> Result<void> { throw std::runtime_error("disk on fire"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kFailed);
  EXPECT_EQ(failed.error().message, "Engine::load: unexpected exception: disk on fire");

  const auto odd = guarded("Engine::load", []() -> Result<void> { throw 5; });
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::kFailed);
  EXPECT_EQ(odd.error().message, "Engine::load: unexpected exception of an unknown type");
}

}  // namespace
}  // namespace markbase::base
