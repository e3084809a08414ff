#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

namespace markbase::base {
namespace {

TEST(AlignedBuffer, IsZeroedAndAligned) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4097}, size_t{3} << 20}) {
    const auto buffer = AlignedBuffer::allocate(size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0U);
    EXPECT_TRUE(std::all_of(buffer->bytes().begin(), buffer->bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(AlignedBuffer, NoBytesNeedNoMemory) {
  const auto buffer = AlignedBuffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->bytes().empty());
}

TEST(AlignedBuffer, TooMuchIsAnErrorWithTheSize) {
  for (const size_t size : {size_t{1} << 62, std::numeric_limits<size_t>::max()}) {
    const auto buffer = AlignedBuffer::allocate(size);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(buffer.error().message.find(std::to_string(size)), std::string::npos);
  }
}

TEST(AlignedBuffer, MovesItsBytes) {
  AlignedBuffer a = *AlignedBuffer::allocate(100);
  a.data()[7] = std::byte{9};
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.data()[7], std::byte{9});
  AlignedBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.data()[7], std::byte{9});
  EXPECT_EQ(c.size_bytes(), 100U);
}

TEST(Arena, PlansAndCarvesAlike) {
  const auto carve = [](Arena& arena) {
    std::byte* first = arena.take(1);
    float* second = arena.take_array<float>(33);
    std::byte* third = arena.take(64);
    return std::array<std::byte*, 3>{first, reinterpret_cast<std::byte*>(second), third};
  };
  Arena plan;
  EXPECT_EQ(carve(plan)[1], nullptr);
  EXPECT_EQ(plan.used_bytes(), 64U + 192U + 64U);
  const AlignedBuffer memory = *AlignedBuffer::allocate(plan.used_bytes());
  Arena arena(memory.bytes());
  const auto pieces = carve(arena);
  EXPECT_EQ(arena.used_bytes(), plan.used_bytes());
  EXPECT_EQ(pieces[0], memory.data());
  EXPECT_EQ(pieces[1], memory.data() + 64);
  EXPECT_EQ(pieces[2], memory.data() + 256);
}

TEST(ArenaDeathTest, TooSmallAPlanIsOurMistake) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const AlignedBuffer memory = *AlignedBuffer::allocate(64);
  Arena arena(memory.bytes());
  arena.take(64);
  EXPECT_DEATH(arena.take(1), "planned too small");
}

}  // namespace
}  // namespace markbase::base
