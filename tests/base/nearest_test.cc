#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace markbase::base {
namespace {

TEST(Nearest, ByTheFewestChanges) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  const std::array<std::string_view, 3> names = {"special", "text", "bos"};
  EXPECT_EQ(nearest("bso", names), "");  // two of three letters: no guess
  EXPECT_EQ(nearest("boss", names), "bos");
  EXPECT_EQ(nearest("specail", names), "special");
  EXPECT_EQ(nearest("temperature", names), "");
  EXPECT_EQ(nearest("", names), "");
}

}  // namespace
}  // namespace markbase::base
