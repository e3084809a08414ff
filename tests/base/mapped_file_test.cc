#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace markbase::base {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "markbase-map-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
    return dir_ + "/" + name;
  }

  std::string dir_;
};

constexpr size_t kPage = 4096;

TEST_F(MappedFileTest, ShowsTheBytes) {
  const auto file = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->path(), dir_ + "/a");
  EXPECT_EQ(file->bytes().size(), 5U);
  EXPECT_EQ(file->bytes()[4], std::byte{'o'});
  EXPECT_TRUE(file->check_intact().ok());
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const auto file = MappedFile::open(write("a", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(file->check_intact().ok());
  file->prefetch(file->bytes());
}

TEST_F(MappedFileTest, WhatCannotBeMappedIsBadInput) {
  for (const std::string& path : {dir_ + "/none", dir_, std::string("/dev/null")}) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.error().code, ErrorCode::kBadInput);
    EXPECT_NE(file.error().message.find(path), std::string::npos);
  }
}

TEST_F(MappedFileTest, MovingKeepsTheMapping) {
  auto opened = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(opened.ok());
  MappedFile first = *std::move(opened);
  const std::byte* data = first.bytes().data();
  MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  auto other = MappedFile::open(write("b", "other"));
  second = *std::move(other);
  EXPECT_EQ(second.bytes()[0], std::byte{'o'});
}

TEST_F(MappedFileTest, HintsChangeNothing) {
  const auto file = MappedFile::open(write("a", std::string(10 * kPage, 'x')));
  ASSERT_TRUE(file.ok());
  file->prefetch(file->bytes());
  file->release(file->bytes().subspan(kPage / 2, 5 * kPage));
  for (const std::byte b : file->bytes()) ASSERT_EQ(b, std::byte{'x'});
  // Pages of somebody else keep their bytes.
  std::vector<std::byte> own(16 * kPage, std::byte{1});
  file->release(own);
  for (const std::byte b : own) ASSERT_EQ(b, std::byte{1});
}

TEST_F(MappedFileTest, PagesThatAreGoneReadAsZeros) {
  const std::string path = write("a", std::string(4 * kPage, 'x'));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), kPage), 0);
  EXPECT_EQ(file->bytes()[0], std::byte{'x'});
  EXPECT_EQ(file->bytes()[3 * kPage], std::byte{0});
  const auto intact = file->check_intact();
  ASSERT_FALSE(intact.ok());
  EXPECT_EQ(intact.error().code, ErrorCode::kBadInput);
  EXPECT_NE(intact.error().message.find("expected 16384 bytes"), std::string::npos);
  EXPECT_NE(intact.error().message.find("got 4096"), std::string::npos);
}

// The kernel gives zeros for the rest of a page in silence: the size alone tells.
TEST_F(MappedFileTest, ACutInsideTheLastPageIsNoticed) {
  const std::string path = write("a", std::string(100, 'x'));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 50), 0);
  EXPECT_FALSE(file->check_intact().ok());
}

TEST_F(MappedFileTest, APageMetAsGoneIsRememberedWhenTheFileGrowsBack) {
  const std::string path = write("a", std::string(2 * kPage, 'x'));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(file->bytes()[kPage], std::byte{0});
  ASSERT_EQ(truncate(path.c_str(), 2 * kPage), 0);
  EXPECT_FALSE(file->check_intact().ok());
}

// Of the same length, no page ever missing: other bytes all the same.
TEST_F(MappedFileTest, AFileWrittenOverInItsPlaceIsNoticed) {
  const std::string path = write("a", std::string(kPage, 'x'));
  const auto before = std::filesystem::last_write_time(path);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  write("a", std::string(kPage, 'y'));
  // The clock of the file system may not have moved on yet.
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  const auto intact = file->check_intact();
  ASSERT_FALSE(intact.ok());
  EXPECT_NE(intact.error().message.find(path), std::string::npos);
  EXPECT_NE(intact.error().message.find("was written to"), std::string::npos);
}

TEST_F(MappedFileTest, AReplacedFileStaysIntact) {
  const std::string path = write("a", std::string(kPage, 'x'));
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove(path);
  write("a", "short");
  EXPECT_TRUE(file->check_intact().ok());
  EXPECT_EQ(file->bytes()[kPage - 1], std::byte{'x'});
}

TEST_F(MappedFileTest, ASlotUsedAgainHasForgottenTheFault) {
  for (int round = 0; round < 3; ++round) {
    const std::string path = write("a", std::string(2 * kPage, 'x'));
    const auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->check_intact().ok());
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    EXPECT_EQ(file->bytes()[kPage], std::byte{0});
    EXPECT_FALSE(file->check_intact().ok());
  }
}

TEST_F(MappedFileTest, ManyThreadsOpenAndClose) {
  const std::string good = write("good", std::string(2 * kPage, 'x'));
  const std::string cut = write("cut", std::string(64 * kPage, 'y'));
  const auto cut_file = MappedFile::open(cut);
  ASSERT_TRUE(cut_file.ok());
  ASSERT_EQ(truncate(cut.c_str(), 0), 0);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    // Each thread meets pages of its own: two that replace one page at once are no error, yet look
    // like a race to a sanitizer.
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto file = MappedFile::open(good);
        const bool ok =
            file.ok() && file->bytes()[kPage] == std::byte{'x'} && file->check_intact().ok();
        const bool zero =
            cut_file->bytes()[static_cast<size_t>(t * 16 + i % 16) * kPage] == std::byte{0};
        if (!ok || !zero) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_FALSE(cut_file->check_intact().ok());
}

// A bus error outside our mappings still ends the process as it would without us.
TEST_F(MappedFileTest, ForeignFaultsAreNotSwallowed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ours = MappedFile::open(write("a", "x"));
  ASSERT_TRUE(ours.ok());
  EXPECT_EXIT(
      {
        // Under a sanitizer its own handler reports; without one the signal ends the process.
        raise(SIGBUS);
        std::_Exit(0);
      },
      [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }, "");
}

}  // namespace
}  // namespace markbase::base
