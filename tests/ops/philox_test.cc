#include <gtest/gtest.h>

#include "ops/sample.h"

namespace markbase::ops {
namespace {

void expect_block(const PhiloxBlock& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// The known-answer vectors that the Random123 library publishes for philox4x32, 10 rounds.
TEST(Philox, GivesThePublishedVectors) {
  expect_block(philox4x32(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  const uint64_t ones = ~uint64_t{0};
  expect_block(philox4x32(ones, ones, ones), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_block(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
               0x94fdcceb, 0x5001e420, 0x24126ea1);
}

}  // namespace
}  // namespace markbase::ops
