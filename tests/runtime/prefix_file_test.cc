// The file of kept prefixes: what is written is read, and every rule of its table is enforced.
#include "runtime/prefix_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "support/temp_dir.h"

namespace markbase {
namespace {

using runtime::kPrefixHeaderBytes;
using runtime::parse_prefix_table;
using runtime::PrefixFile;
using runtime::PrefixFileKey;
using runtime::PrefixFileKind;
using runtime::PrefixFileNode;
using runtime::TableChecksum;

constexpr PrefixFileKey kKey = {11, 22};
constexpr PrefixFileKind kKinds[] = {{100, 16}, {0, 32}};
constexpr size_t kNodeBytes = 272;
constexpr size_t kContentBytes = 16;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Three nodes on one path; the last one is a border with a window of two blocks.
PrefixFile small_file() {
  PrefixFile file;
  for (int32_t i = 0; i < 3; ++i) {
    PrefixFileNode node;
    node.parent = i - 1;
    node.depth = i + 1;
    node.last_use = 7;
    node.ids.fill(100 + i);
    node.blocks = {static_cast<uint32_t>(i)};
    file.contents.push_back({.kind_idx = 1});
    file.nodes.push_back(node);
  }
  file.nodes[2].is_border = true;
  file.nodes[2].windows = {3, 4};
  file.contents.push_back({.kind_idx = 0});
  file.contents.push_back({.kind_idx = 0});
  return file;
}

class PrefixFileTable : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto fill = [](size_t content, std::span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(content));
    };
    const auto written = write_prefix_file(folder_.file("f"), kKey, kKinds, small_file(), fill);
    ASSERT_TRUE(written.ok()) << written.error().message;
    bytes_ = bytes_of(folder_.file("f"));
    ASSERT_EQ(bytes_.size(), kRefs + 5 * 4 + 3 * 32 + 2 * 16);
  }
  Result<PrefixFile> parse(const std::string& bytes, TableChecksum checksum,
                           const PrefixFileKey& key = kKey) const {
    return parse_prefix_table(std::as_bytes(std::span(bytes)), bytes.size(), key, kKinds, checksum);
  }
  // A number in the table replaced, whatever the checksum says then.
  template <class T>
  std::string error_with(size_t offset, T value) const {
    std::string bytes = bytes_;
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    const auto file = parse(bytes, TableChecksum::kIgnored);
    if (file.ok()) return "none";
    EXPECT_EQ(file.error().code, ErrorCode::kBadInput);
    return file.error().message;
  }

  static constexpr size_t kContents = kPrefixHeaderBytes + 3 * kNodeBytes;
  static constexpr size_t kRefs = kContents + 5 * kContentBytes;
  testing::TempDir folder_;
  std::string bytes_;
};

TEST_F(PrefixFileTable, IsReadAsItWasWritten) {
  const auto file = parse(bytes_, TableChecksum::kChecked);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const PrefixFile expected = small_file();
  ASSERT_EQ(file->nodes.size(), expected.nodes.size());
  for (size_t i = 0; i < 3; ++i) {
    const PrefixFileNode& node = file->nodes[i];
    EXPECT_EQ(node.parent, expected.nodes[i].parent);
    EXPECT_EQ(node.is_border, expected.nodes[i].is_border);
    EXPECT_EQ(node.depth, expected.nodes[i].depth);
    EXPECT_EQ(node.last_use, 7U);
    EXPECT_EQ(node.ids, expected.nodes[i].ids);
    EXPECT_EQ(node.blocks, expected.nodes[i].blocks);
    EXPECT_EQ(node.windows, expected.nodes[i].windows);
  }
  ASSERT_EQ(file->contents.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(file->contents[i].kind_idx, i < 3 ? 1U : 0U);
    EXPECT_EQ(bytes_[file->contents[i].offset], static_cast<char>(i));
  }
}

TEST_F(PrefixFileTable, EveryRuleIsEnforced) {
  EXPECT_EQ(error_with<int32_t>(kPrefixHeaderBytes, -1), "none") << "as it is";
  const auto expect = [&](const std::string& got, const char* part) {
    EXPECT_NE(got.find(part), std::string::npos) << got << ", expected: " << part;
  };
  expect(error_with<char>(0, 'X'), "magic");
  expect(error_with<uint32_t>(8, 2), "expected version 1, got 2");
  expect(error_with<uint32_t>(12, 32), "blocks of 64 tokens, got 32");
  expect(error_with<uint64_t>(16, 12), "another model");
  expect(error_with<uint64_t>(24, 23), "another kind of cache");
  expect(error_with<uint64_t>(32, 5), "size: expected 5 bytes");
  for (const size_t count : {40, 48, 56}) {
    for (const uint64_t value : {uint64_t{1} << 20, ~uint64_t{0}, uint64_t{1} << 63}) {
      expect(error_with<uint64_t>(count, value), "table: expected");
    }
  }
  expect(error_with<uint64_t>(40, 2), "kind");  // a node less: its numbers are others' now
  expect(error_with<uint64_t>(48, 4), "size: expected");
  expect(error_with<uint64_t>(48, 6), "beyond the end");
  for (const size_t node : {0, 1, 2}) {
    const size_t at = kPrefixHeaderBytes + node * kNodeBytes;
    expect(error_with<int32_t>(at, -2), "expected a parent before it, got -2");
    expect(error_with<int32_t>(at, static_cast<int32_t>(node)), "expected a parent before it");
    expect(error_with<uint32_t>(at + 4, 2), "expected a border or none, got 2");
  }
  expect(error_with<uint32_t>(kPrefixHeaderBytes + 2 * kNodeBytes + 4, 0), "belong to no node");
  expect(error_with<uint32_t>(kPrefixHeaderBytes + kNodeBytes + 4, 1), "expected a block of kind");
  expect(error_with<uint64_t>(kContents + 8, 2), "expected one of 2 kinds, got 2");
  expect(error_with<uint64_t>(kContents + 8, 0), "size: expected");
  expect(error_with<uint64_t>(kContents + 3 * kContentBytes + 8, 1), "beyond the end");
  expect(error_with<uint32_t>(kRefs, 5), "expected a block of kind 1, got block 5");
  expect(error_with<uint32_t>(kRefs, 3), "expected a block of kind 1, got block 3");
}

TEST_F(PrefixFileTable, ANodeWithoutItsBlocksIsRefused) {
  // A reference less, and all sizes say so.
  std::string bytes = bytes_;
  bytes.erase(kRefs + 4 * sizeof(uint32_t), sizeof(uint32_t));
  const uint64_t file_bytes = bytes.size();
  const uint64_t num_refs = 4;
  std::memcpy(bytes.data() + 32, &file_bytes, sizeof file_bytes);
  std::memcpy(bytes.data() + 48, &num_refs, sizeof num_refs);
  const auto file = parse(bytes, TableChecksum::kIgnored);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("node 2: its blocks are missing"), std::string::npos)
      << file.error().message;
}

TEST_F(PrefixFileTable, TheChecksumCoversHeaderAndTable) {
  for (size_t at = 0; at < kRefs + 20; ++at) {
    std::string broken = bytes_;
    broken[at] = static_cast<char>(broken[at] ^ 4);
    EXPECT_FALSE(parse(broken, TableChecksum::kChecked).ok()) << at;
  }
}

TEST_F(PrefixFileTable, AnyLengthIsRefusedButItsOwn) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    EXPECT_FALSE(parse(bytes_.substr(0, size), TableChecksum::kIgnored).ok()) << size;
    // The file is as long as it says, but only so much of it is there.
    const auto cut = std::as_bytes(std::span(bytes_)).first(size);
    EXPECT_EQ(parse_prefix_table(cut, bytes_.size(), kKey, kKinds).ok(), size >= kRefs + 20);
  }
}

// What fuzzing starts from is past the first checks.
TEST_F(PrefixFileTable, TheCorpusIsWellFormed) {
  constexpr PrefixFileKind kFuzzKinds[] = {{0, 32}, {100, 16}, {20, 8}};
  for (const char* name : {"empty", "one_block", "branches"}) {
    const std::string bytes =
        bytes_of(std::string(MARKBASE_SOURCE_DIR) + "/fuzz/corpus/prefixes/" + name);
    ASSERT_GE(bytes.size(), kPrefixHeaderBytes) << name;
    uint64_t file_bytes = 0;
    std::memcpy(&file_bytes, bytes.data() + 32, sizeof file_bytes);
    const auto file = parse_prefix_table(std::as_bytes(std::span(bytes)), file_bytes, {5, 6},
                                         kFuzzKinds, TableChecksum::kIgnored);
    EXPECT_TRUE(file.ok()) << name << ": " << (file.ok() ? "" : file.error().message);
  }
}

}  // namespace
}  // namespace markbase
