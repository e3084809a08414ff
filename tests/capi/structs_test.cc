// Structs that carry their size, arguments, errors: no model needed.
#include "capi/structs.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

namespace markbase::capi {

// A struct of two versions: `late` came with the second.
struct Grown {
  size_t size;
  int64_t early;
  int64_t late;
};
template <>
inline constexpr size_t kFirstBytes<Grown> = 16;

namespace {

struct Later {
  Grown known;
  int64_t unknown;
};

TEST(Structs, OldCallersGetTheDefaultOfWhatTheyDoNotHave) {
  const Grown old = {16, 5, 99};  // what lies behind it is not the caller's struct
  const auto read = read_struct(&old, Grown{sizeof(Grown), 1, 7}, "it");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->early, 5);
  EXPECT_EQ(read->late, 7);

  Grown out = {16, 0, 99};
  ASSERT_TRUE(write_struct(Grown{sizeof(Grown), 3, 4}, &out, "it").ok());
  EXPECT_EQ(out.size, 16U);
  EXPECT_EQ(out.early, 3);
  EXPECT_EQ(out.late, 99);
}

TEST(Structs, LaterCallersAreServedUnlessTheyAskForWhatIsNotKnown) {
  Later later = {{sizeof(Later), 5, 6}, 0};
  const auto read = read_struct(&later.known, Grown{sizeof(Grown), 1, 7}, "it");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->late, 6);
  later.unknown = int64_t{1} << 40;
  const auto refused = read_struct(&later.known, Grown{}, "it");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message,
            "it: a field is set that this library does not know: expected 24 bytes, got 32");

  ASSERT_TRUE(write_struct(Grown{sizeof(Grown), 3, 4}, &later.known, "it").ok());
  EXPECT_EQ(later.known.late, 4);
  EXPECT_EQ(later.unknown, 0);
}

TEST(Structs, SizesThatCannotBeAreRefused) {
  for (const size_t size : {size_t{0}, size_t{8}, size_t{15}, size_t{4097}, ~size_t{0}}) {
    Grown bad = {size, 5, 6};
    const auto read = read_struct(&bad, Grown{}, "it");
    ASSERT_FALSE(read.ok()) << size;
    EXPECT_EQ(read.error().code, ErrorCode::kUsage);
    EXPECT_NE(read.error().message.find("expected 24 bytes"), std::string::npos);
    EXPECT_FALSE(write_struct(Grown{}, &bad, "it").ok()) << size;
    EXPECT_FALSE(init_struct(Grown{}, &bad, size, "it").ok()) << size;
    EXPECT_EQ(bad.early, 5);
  }
  EXPECT_FALSE(read_struct<Grown>(nullptr, {}, "it").ok());
  EXPECT_FALSE(write_struct<Grown>({}, nullptr, "it").ok());
  EXPECT_FALSE(init_struct<Grown>({}, nullptr, sizeof(Grown), "it").ok());
}

TEST(Door, NothingIsThrownThroughIt) {
  mb_error* error = nullptr;
  EXPECT_EQ(door("mb_x", &error, []() -> Result<void> { throw std::bad_alloc(); }),
            MB_OUT_OF_MEMORY);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(mb_error_status(error), MB_OUT_OF_MEMORY);
  EXPECT_STREQ(mb_error_message(error), "mb_x: out of memory");
  mb_error_free(error);
  EXPECT_EQ(door("mb_x", &error, []() -> Result<void> { throw std::out_of_range("at 5"); }),
            MB_FAILED);
  EXPECT_STREQ(mb_error_message(error), "mb_x: unexpected exception: at 5");
  mb_error_free(error);
  EXPECT_EQ(door("mb_x", nullptr, []() -> Result<void> { throw 1; }), MB_FAILED);
  // A success leaves no error of an earlier call behind.
  EXPECT_EQ(door("mb_x", &error, [] { return Result<void>(); }), MB_OK);
  EXPECT_EQ(error, nullptr);
}

TEST(Door, StatusesAreTheErrorCodes) {
  EXPECT_EQ(static_cast<int>(ErrorCode::kFailed), MB_FAILED);
  EXPECT_EQ(static_cast<int>(ErrorCode::kUsage), MB_USAGE);
  EXPECT_EQ(static_cast<int>(ErrorCode::kBadInput), MB_BAD_INPUT);
  EXPECT_EQ(static_cast<int>(ErrorCode::kOutOfMemory), MB_OUT_OF_MEMORY);
  EXPECT_EQ(static_cast<int>(ErrorCode::kOverloaded), MB_OVERLOADED);
  EXPECT_EQ(static_cast<int>(ErrorCode::kCancelled), MB_CANCELLED);
}

TEST(Door, TextsAndFlags) {
  EXPECT_EQ(*text_of({nullptr, 0}, "text"), "");
  EXPECT_EQ(*text_of({"a\0b", 3}, "text"), std::string("a\0b", 3));
  EXPECT_EQ(text_of({nullptr, 3}, "text").error().message, "text: expected a pointer, got NULL");
  EXPECT_TRUE(*flag(1, "on"));
  EXPECT_FALSE(*flag(0, "on"));
  EXPECT_EQ(flag(2, "on").error().message, "on: expected 0 or 1, got 2");
  EXPECT_EQ(mb_text(nullptr).num_bytes, 0U);
  EXPECT_EQ(mb_text("abc").num_bytes, 3U);
}

}  // namespace
}  // namespace markbase::capi
