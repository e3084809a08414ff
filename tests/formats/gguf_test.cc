#include <gtest/gtest.h>

#include <cmath>

#include "format_files.h"
#include "formats/gguf/gguf_source.h"
#include "formats/gguf/gguf_types.h"
#include "formats/gguf/gguf_writer.h"

namespace markbase::formats {
namespace {

std::string build(const GgufWriter& writer, std::span<const std::string> tensors) {
  std::string out = writer.header();
  for (const std::string& bytes : tensors) {
    out += bytes;
    out.resize(static_cast<size_t>(writer.padded(out.size())), '\0');
  }
  return out;
}

class GgufVersions : public testing::TestWithParam<uint32_t> {};

TEST_P(GgufVersions, EveryMetadataTypeIsRead) {
  GgufWriter writer(GetParam());
  writer.add("u8", uint8_t{200});
  writer.add("i8", int8_t{-100});
  writer.add("u16", uint16_t{60000});
  writer.add("i16", int16_t{-30000});
  writer.add("u32", uint32_t{4000000000});
  writer.add("i32", int32_t{-2000000000});
  writer.add("f32", 0.1f);
  writer.add("bool", true);
  writer.add("string", std::string("a\0b", 3));
  writer.add("u64", uint64_t{1} << 63);
  writer.add("i64", int64_t{-5});
  writer.add("f64", 1e-300);
  writer.add_array("strings", std::vector<std::string>{"x", "", "yz"});
  writer.add_array("bools", std::vector<bool>{true, false});
  writer.add_array("none", std::vector<uint32_t>{});
  const std::string bytes = writer.header();
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->version(), static_cast<int>(GetParam()));
  const base::Json& m = file->metadata();
  EXPECT_EQ(m.at("u8"), 200);
  EXPECT_EQ(m.at("i8"), -100);
  EXPECT_EQ(m.at("u16"), 60000);
  EXPECT_EQ(m.at("i16"), -30000);
  EXPECT_EQ(m.at("u32"), 4000000000);
  EXPECT_EQ(m.at("i32"), -2000000000);
  EXPECT_EQ(m.at("f32").get<float>(), 0.1f);
  EXPECT_EQ(m.at("bool"), true);
  EXPECT_EQ(m.at("string").get<std::string>(), std::string("a\0b", 3));
  EXPECT_EQ(m.at("u64").get<uint64_t>(), uint64_t{1} << 63);
  EXPECT_EQ(m.at("i64"), -5);
  EXPECT_EQ(m.at("f64").get<double>(), 1e-300);
  EXPECT_EQ(m.at("strings"), base::Json({"x", "", "yz"}));
  EXPECT_EQ(m.at("bools"), base::Json({true, false}));
  EXPECT_EQ(m.at("none"), base::Json::array());
  EXPECT_EQ(m.size(), 15U);
}

INSTANTIATE_TEST_SUITE_P(Both, GgufVersions, testing::Values(2U, 3U));

template <class T>
void expect_integers(const std::vector<T>& values) {
  GgufWriter writer;
  writer.add_array("k", values);
  const std::string bytes = writer.header();
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto got = file->integer_array("k");
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(*got, std::vector<int64_t>(values.begin(), values.end()));
}

TEST(Gguf, IntegerArraysOfAnyWidth) {
  expect_integers<uint8_t>({0, 255});
  expect_integers<int8_t>({-128, 127});
  expect_integers<uint16_t>({0, 65535});
  expect_integers<int16_t>({-32768, 5});
  expect_integers<uint32_t>({0, 4294967295});
  expect_integers<int32_t>({INT32_MIN, INT32_MAX});
  expect_integers<uint64_t>({0, INT64_MAX});
  expect_integers<int64_t>({INT64_MIN, INT64_MAX});
  expect_integers<bool>({true, false});
}

TEST(Gguf, ArraysOfAnotherKindAreRefusedByName) {
  GgufWriter writer;
  writer.add_array("u64", std::vector<uint64_t>{~uint64_t{0}});
  writer.add_array("f32", std::vector<float>{1.5f});
  writer.add_array("f64", std::vector<double>{-2.5});
  writer.add("single", uint32_t{4});
  const std::string bytes = writer.header();
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file->float_array("f32"), std::vector<float>{1.5f});
  EXPECT_EQ(*file->float_array("f64"), std::vector<float>{-2.5f});
  expect_message(file->integer_array("u64").error().message, "f.gguf", "integers below 2^63",
                 "18446744073709551615");
  expect_message(file->integer_array("f32").error().message, "f.gguf", "integers",
                 "an array of f32");
  expect_message(file->float_array("u64").error().message, "f.gguf", "f32 or f64",
                 "an array of u64");
  expect_message(file->string_array("single").error().message, "f.gguf", "strings",
                 "a single number");
  expect_message(file->string_array("none").error().message, "f.gguf", "strings", "no such key");
}

TEST(Gguf, LongArraysStandAsCounts) {
  std::vector<std::string> tokens(5000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = "token" + std::to_string(i);
  GgufWriter writer;
  writer.add_array("tokens", tokens);
  writer.add_array("scores", std::vector<float>(4097, 0.5f));
  writer.add_array("short", std::vector<uint8_t>(4096, 7));
  const std::string bytes = writer.header();
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(base::dump_json(file->metadata().at("tokens")), R"({"array":"string","count":5000})");
  EXPECT_EQ(base::dump_json(file->metadata().at("scores")), R"({"array":"f32","count":4097})");
  EXPECT_EQ(file->metadata().at("short").size(), 4096U);
  const auto read = file->string_array("tokens");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), tokens.size());
  EXPECT_TRUE(std::equal(read->begin(), read->end(), tokens.begin()));
  EXPECT_EQ(file->float_array("scores")->size(), 4097U);
}

// Every type that the reader supports, with its bytes and its place.
TEST(Gguf, EveryTensorType) {
  for (const uint64_t alignment : {32, 8, 256}) {
    GgufWriter writer(3, alignment);
    std::vector<std::string> tensors;
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < 43; ++id) {
      const GgmlType* type = find_ggml_type(id);
      ASSERT_NE(type, nullptr);
      EXPECT_EQ(ggml_type_id(type->name), id);
      if (!type->supported()) continue;
      const int64_t cols = 2 * type->block_elements;
      writer.add_tensor("t" + std::to_string(id), {3, 5, cols}, id);
      tensors.emplace_back(static_cast<size_t>(15 * 2 * type->block_bytes),
                           static_cast<char>('a' + id));
      ids.push_back(id);
    }
    EXPECT_EQ(ids.size(), 21U);
    const std::string bytes = build(writer, tensors);
    Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    std::vector<GgufFile> files;
    files.push_back(*std::move(file));
    const auto source = GgufSource::make(std::move(files));
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (size_t i = 0; i < ids.size(); ++i) {
      const GgmlType& type = *find_ggml_type(ids[i]);
      const TensorInfo* tensor = (*source)->find("t" + std::to_string(ids[i]));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->type_name, type.name);
      EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 5, 2 * type.block_elements}));
      EXPECT_EQ(text_of(tensor->data), tensors[i]);
      const auto weight = (*source)->weight(tensor->name);
      if (!type.format) {
        expect_message(weight.error().message, "f.gguf", "a weight of floats",
                       std::string(type.name));
        continue;
      }
      ASSERT_TRUE(weight.ok()) << weight.error().message;
      EXPECT_EQ(weight->format, *type.format);
      EXPECT_EQ(quant::format_name(weight->format), type.name);
      EXPECT_EQ(weight->rows, 15);
      EXPECT_EQ(weight->cols, 2 * type.block_elements);
      EXPECT_EQ(quant::block_shape(weight->format).elements, type.block_elements);
      EXPECT_EQ(quant::block_shape(weight->format).bytes, type.block_bytes);
    }
    expect_message((*source)->weight("none").error().message, "f.gguf", "to be in the file",
                   "no such tensor");
  }
}

// ---- split sets ----

struct Split {
  int no = 0;
  int count = 3;
  int tensors_count = 3;
  bool keys = true;
  std::string tensor;
};

std::string write_split(const TempDir& dir, const std::string& name, const Split& split) {
  GgufWriter writer;
  if (split.keys) {
    writer.add("split.no", static_cast<uint16_t>(split.no));
    writer.add("split.count", static_cast<uint16_t>(split.count));
    writer.add("split.tensors.count", static_cast<int32_t>(split.tensors_count));
  }
  if (split.no == 0) writer.add("general.architecture", std::string("gemma3"));
  writer.add_tensor(split.tensor, {2, 4}, 0);
  const std::string data(32, static_cast<char>('0' + split.no));
  EXPECT_TRUE(writer.open(dir.file(name)).ok());
  EXPECT_TRUE(writer.write(bytes_of(data).first(10)).ok());
  EXPECT_TRUE(writer.write(bytes_of(data).subspan(10)).ok());
  EXPECT_TRUE(writer.finish().ok());
  return dir.file(name);
}

std::string split_name(int no, int count = 3) {
  return "m-0000" + std::to_string(no + 1) + "-of-0000" + std::to_string(count) + ".gguf";
}

TEST(GgufSplits, AnySplitOpensTheSet) {
  const TempDir dir;
  for (int i = 0; i < 3; ++i)
    write_split(dir, split_name(i), {.no = i, .tensor = "t" + std::to_string(i)});
  for (int i = 0; i < 3; ++i) {
    const auto source = open_weight_source(dir.file(split_name(i)));
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_EQ((*source)->kind(), FileKind::kGguf);
    ASSERT_EQ((*source)->tensors().size(), 3U);
    ASSERT_EQ((*source)->files().size(), 3U);
    EXPECT_EQ((*source)->config().at("general.architecture"), "gemma3");
    for (int t = 0; t < 3; ++t) {
      const TensorInfo* tensor = (*source)->find("t" + std::to_string(t));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->file_idx, t);
      EXPECT_EQ(text_of(tensor->data), std::string(32, static_cast<char>('0' + t)));
    }
  }
}

// Opens split 1 of a set of three whose split 2 is as given, and returns the message.
std::string message_of_broken_set(const Split& second,
                                  const std::string& second_name = split_name(1)) {
  const TempDir dir;
  write_split(dir, split_name(0), {.no = 0, .tensor = "t0"});
  write_split(dir, second_name, second);
  write_split(dir, split_name(2), {.no = 2, .tensor = "t2"});
  const auto source = open_weight_source(dir.file(split_name(0)));
  if (source.ok()) return "was opened";
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  return source.error().message;
}

TEST(GgufSplits, BrokenSetsAreRefused) {
  EXPECT_NE(message_of_broken_set({.no = 1, .tensor = "t1"}, "elsewhere.gguf").find(split_name(1)),
            std::string::npos);
  expect_message(message_of_broken_set({.no = 2, .tensor = "t1"}), split_name(1), "1", "2");
  expect_message(message_of_broken_set({.no = 1, .count = 4, .tensor = "t1"}), split_name(1), "3",
                 "4");
  expect_message(message_of_broken_set({.no = 1, .keys = false, .tensor = "t1"}), split_name(1),
                 "3", "no such key");
  expect_message(message_of_broken_set({.no = 1, .tensors_count = 9, .tensor = "t1"}),
                 split_name(1), "the tensors in all 3 splits", "9");
  expect_message(message_of_broken_set({.no = 1, .tensor = "t0"}), split_name(1),
                 "each tensor once", "also in ");
  const TempDir dir;
  auto source = open_weight_source(write_split(dir, "m.gguf", {.no = 0, .tensor = "t0"}));
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, "m.gguf", "-00001-of-00003.gguf", "another name");
  source = open_weight_source(write_split(dir, split_name(0, 2), {.no = 0, .tensor = "t0"}));
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, split_name(0, 2), "split.count 3", "-of-00002");
  source = open_weight_source(write_split(dir, split_name(1, 2), {.keys = false, .tensor = "t0"}));
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, split_name(1, 2), "2 as in the file name", "no such key");
}

TEST(GgufSplits, ASetOfOneNeedsNoOtherName) {
  const TempDir dir;
  const auto source = open_weight_source(
      write_split(dir, "m.gguf", {.no = 0, .count = 1, .tensors_count = 1, .tensor = "t0"}));
  EXPECT_TRUE(source.ok());
}

}  // namespace
}  // namespace markbase::formats
