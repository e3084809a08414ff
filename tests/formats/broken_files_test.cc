// The table of broken files: one row for each rule that a reader enforces.
#include <gtest/gtest.h>

#include "format_files.h"
#include "formats/gguf/gguf_file.h"
#include "formats/safetensors/safetensors_file.h"
#include "formats/safetensors/safetensors_header.h"

namespace markbase::formats {
namespace {

struct Row {
  const char* name;  // the rule
  std::string bytes;
  const char* expected;  // must be in the message, and so must `got`, after ", got "
  const char* got;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::string row_name(const testing::TestParamInfo<Row>& info) { return info.param.name; }

// ---- GGUF, by hand, so that every field can be wrong ----

std::string str(std::string_view text) {
  return le(static_cast<uint64_t>(text.size())) + std::string(text);
}
std::string kv(std::string_view key, uint32_t type, const std::string& value) {
  return str(key) + le(type) + value;
}
std::string tensor(std::string_view name, std::vector<uint64_t> ne, uint32_t type,
                   uint64_t offset) {
  std::string out = str(name) + le(static_cast<uint32_t>(ne.size()));
  for (const uint64_t n : ne) out += le(n);
  return out + le(type) + le(offset);
}
std::string gguf(uint64_t num_tensors, uint64_t num_keys, const std::string& body,
                 size_t data_bytes, uint32_t version = 3, size_t alignment = 32) {
  std::string out = "GGUF" + le(version) + le(num_tensors) + le(num_keys) + body;
  out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
  return out + std::string(data_bytes, '\1');
}

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4K = 12;
const std::string kKey = kv("a.key", 4, le(uint32_t{7}));

std::string one_tensor(std::vector<uint64_t> ne, uint32_t type, uint64_t offset,
                       size_t data_bytes) {
  return gguf(1, 1, kKey + tensor("w", std::move(ne), type, offset), data_bytes);
}
std::string one_key(const std::string& key) { return gguf(0, 1, key, 64); }

std::vector<Row> gguf_rows() {
  const std::string good = one_tensor({4, 2}, kF32, 0, 32);
  const uint64_t huge = uint64_t{1} << 62;
  return {
      {"empty", "", "a GGUF file", "an empty file"},
      {"git_lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a GGUF file",
       "Git LFS pointer"},
      {"magic_cut", "GG", "\"GGUF\"", "2 bytes until the end"},
      {"magic", "GGUX" + good.substr(4), "\"GGUF\"", "47 47 55 58"},
      {"version_cut", good.substr(0, 6), "4 bytes", "2 bytes until the end"},
      {"version_1", gguf(0, 0, "", 32, 1), "version 2 or 3", "version 1"},
      {"version_4", gguf(0, 0, "", 32, 4), "version 2 or 3", "version 4"},
      {"big_endian", gguf(0, 0, "", 32, 0x03000000), "little-endian", "a big-endian file"},
      {"tensor_count_cut", good.substr(0, 12), "8 bytes", "4 bytes until the end"},
      {"key_count_cut", good.substr(0, 20), "8 bytes", "4 bytes until the end"},
      {"key_count", gguf(0, huge, "", 32), "at most", "4611686018427387904"},
      {"tensor_count", gguf(huge, 0, "", 32), "at most", "4611686018427387904"},
      {"key_empty", one_key(kv("", 4, le(uint32_t{7}))), "a name", "an empty string"},
      {"key_too_long", one_key(kv(std::string(70000, 'k'), 4, le(uint32_t{7}))),
       "at most 65535 bytes", "70000"},
      {"key_length_beyond_file", one_key(le(uint64_t{60000}) + "x"), "a string of 60000 bytes",
       "bytes until the end"},
      {"key_twice", gguf(0, 2, kKey + kKey, 64), "each key once", "a second one"},
      {"key_type", one_key(kv("k", 13, le(uint32_t{7}))), "a value type of 0 to 12", "13"},
      {"value_cut",
       "GGUF" + le(uint32_t{3}) + le(uint64_t{0}) + le(uint64_t{1}) + kv("key", 12, "abc"),
       "a value of 8 bytes", "3 bytes until the end"},
      {"bool_value", one_key(kv("k", 7, "\2")), "a bool, 0 or 1", "2"},
      {"bool_in_array", one_key(kv("k", 9, le(uint32_t{7}) + le(uint64_t{2}) + "\1\3")),
       "a bool, 0 or 1", "3"},
      {"string_length", one_key(kv("k", 8, le(huge) + "abc")),
       "a string of 4611686018427387904 bytes", "bytes until the end"},
      {"array_nested", one_key(kv("k", 9, le(uint32_t{9}) + le(uint64_t{1}) + le(uint64_t{0}))),
       "an array of numbers, bools or strings", "elements of type 9 (array)"},
      {"array_type", one_key(kv("k", 9, le(uint32_t{77}) + le(uint64_t{1}))),
       "an array of numbers, bools or strings", "elements of type 77"},
      {"array_count", one_key(kv("k", 9, le(uint32_t{10}) + le(huge))), "elements of 8 bytes",
       "4611686018427387904"},
      {"array_count_overflows", one_key(kv("k", 9, le(uint32_t{10}) + le(uint64_t{1} << 61))),
       "elements of 8 bytes", "2305843009213693952"},
      {"array_strings_count", one_key(kv("k", 9, le(uint32_t{8}) + le(huge))), "strings in the",
       "4611686018427387904"},
      {"array_string_cut",
       one_key(kv("k", 9, le(uint32_t{8}) + le(uint64_t{1}) + le(uint64_t{5000}))),
       "a whole string", "bytes until the end"},
      {"alignment_power", one_key(kv("general.alignment", 4, le(uint32_t{24}))), "a power of two",
       "24"},
      {"alignment_zero", one_key(kv("general.alignment", 4, le(uint32_t{0}))), "a power of two",
       "0"},
      {"alignment_negative", one_key(kv("general.alignment", 5, le(int32_t{-32}))),
       "a power of two", "-32"},
      {"alignment_string", one_key(kv("general.alignment", 8, str("32"))), "a power of two",
       "string"},
      {"tensor_name_empty", gguf(1, 1, kKey + tensor("", {4}, kF32, 0), 64), "a name",
       "an empty string"},
      {"tensor_name_long", gguf(1, 1, kKey + tensor(std::string(65, 't'), {4}, kF32, 0), 64),
       "at most 64 bytes", "65"},
      {"tensor_twice",
       gguf(2, 1, kKey + tensor("w", {4}, kF32, 0) + tensor("w", {4}, kF32, 32), 64),
       "each tensor once", "a second one"},
      {"dims_0", one_tensor({}, kF32, 0, 64), "1 to 4 dimensions", "0"},
      {"dims_5", one_tensor({1, 1, 1, 1, 1}, kF32, 0, 64), "1 to 4 dimensions", "5"},
      {"ne_zero", one_tensor({4, 0}, kF32, 0, 64), "1 to 2^63 - 1", "0"},
      {"ne_negative", one_tensor({~uint64_t{0}}, kF32, 0, 64), "1 to 2^63 - 1",
       "18446744073709551615"},
      {"elements_overflow", one_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0, 64),
       "fewer than 2^63 elements", "beyond"},
      {"bytes_overflow", one_tensor({huge}, kF32, 0, 64), "fewer than 2^63 bytes", "beyond"},
      {"row_not_whole_blocks", one_tensor({260, 2}, kQ4K, 0, 1024),
       "a multiple of 256 elements (Q4_K)", "260"},
      {"type_by_name", one_tensor({256}, 16, 0, 1024), "a supported type",
       "IQ2_XXS (ggml type 16)"},
      {"type_removed", one_tensor({32}, 4, 0, 1024), "a supported type",
       "Q4_2 (removed) (ggml type 4)"},
      {"type_activation", one_tensor({32}, 9, 0, 1024), "a supported type", "Q8_1 (ggml type 9)"},
      {"type_unknown", one_tensor({32}, 43, 0, 1024), "a supported type",
       "an unknown type (ggml type 43)"},
      {"offset_unaligned", one_tensor({4}, kF32, 8, 64), "a multiple of 32", "8"},
      {"offset_alignment_key",
       gguf(1, 1, kv("general.alignment", 4, le(uint32_t{64})) + tensor("w", {4}, kF32, 32), 128, 3,
            64),
       "a multiple of 64", "32"},
      {"offset_outside", one_tensor({4}, kF32, 64, 32), "16 bytes at data offset 64",
       "32 bytes of data"},
      {"offset_huge", one_tensor({4}, kF32, ~uint64_t{31}, 32),
       "at data offset 18446744073709551584", "32 bytes of data"},
      {"data_cut", one_tensor({4, 3}, kF32, 0, 47), "48 bytes at data offset 0",
       "47 bytes of data"},
      {"data_missing", good.substr(0, good.size() - 32), "32 bytes at data offset 0",
       "0 bytes of data"},
      {"padding_cut", good.substr(0, good.size() - 33), "bytes of padding", "bytes until the end"},
      {"overlap", gguf(2, 1, kKey + tensor("w", {16}, kF32, 0) + tensor("v", {4}, kF32, 32), 64),
       "at least 64, where tensor \"w\" ends", "32"},
      {"tensor_table_cut",
       "GGUF" + le(uint32_t{3}) + le(uint64_t{1}) + le(uint64_t{1}) + kKey +
           tensor("weights-of-a-layer", {4}, kF32, 0).substr(0, 38),
       "a type of 4 bytes", "0 bytes until the end"},
  };
}

class BrokenGguf : public testing::TestWithParam<Row> {};

TEST_P(BrokenGguf, IsRefused) {
  const Row& row = GetParam();
  const Result<GgufFile> in_memory = GgufFile::parse(bytes_of(row.bytes), "dir/broken.gguf");
  ASSERT_FALSE(in_memory.ok());
  EXPECT_EQ(in_memory.error().code, ErrorCode::kBadInput);
  expect_message(in_memory.error().message, "dir/broken.gguf", row.expected, row.got);
  // The same through the file system.
  const TempDir dir;
  const std::string path = dir.write("broken.gguf", row.bytes);
  const Result<std::unique_ptr<WeightSource>> source = open_weight_source(path);
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  expect_message(source.error().message, path, row.expected, row.got);
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenGguf, testing::ValuesIn(gguf_rows()), row_name);

TEST(BrokenGgufTable, TheUnbrokenFileIsRead) {
  const std::string good = one_tensor({4, 2}, kF32, 0, 32);
  const Result<GgufFile> file = GgufFile::parse(bytes_of(good), "good");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<int64_t>{2, 4}));
}

// Every prefix of a good file is refused, and none is read past its end (seen under ASan).
TEST(BrokenGgufTable, EveryPrefixIsRefused) {
  const std::string good =
      gguf(1, 3,
           kKey + kv("s", 8, str("text")) +
               kv("l", 9, le(uint32_t{8}) + le(uint64_t{2}) + str("a") + str("bc")) +
               tensor("w", {4, 2}, kF32, 0),
           32);
  ASSERT_TRUE(GgufFile::parse(bytes_of(good), "good").ok());
  for (size_t n = 0; n < good.size(); ++n) {
    const std::vector<char> prefix(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_FALSE(GgufFile::parse(bytes_of({prefix.data(), n}), "cut").ok()) << n;
  }
}

// ---- safetensors ----

std::string safetensors(std::string_view json, size_t data_bytes) {
  return le(static_cast<uint64_t>(json.size())) + std::string(json) + std::string(data_bytes, '\1');
}
std::string entry(std::string_view shape, std::string_view offsets,
                  std::string_view dtype = "\"F32\"") {
  return "{\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
         ",\"data_offsets\":" + std::string(offsets) + "}";
}
std::string one(const std::string& body, size_t data_bytes) {
  return safetensors("{\"w\":" + body + "}", data_bytes);
}
std::string two(const std::string& a, const std::string& b, size_t data_bytes) {
  return safetensors("{\"a\":" + a + ",\"b\":" + b + "}", data_bytes);
}

std::vector<Row> safetensors_rows() {
  const std::string good = one(entry("[2,2]", "[0,16]"), 16);
  return {
      {"empty", "", "a safetensors file", "an empty file"},
      {"git_lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
       "a safetensors file", "Git LFS pointer"},
      {"length_cut", good.substr(0, 5), "8 bytes", "5 bytes"},
      {"length_beyond_limit", le(uint64_t{100'000'001}) + "{}", "at most 100000000 bytes",
       "100000001"},
      {"length_huge", le(~uint64_t{0}) + "{}", "at most 100000000 bytes", "18446744073709551615"},
      {"length_beyond_file", le(uint64_t{500}) + "{}", "at most the 2 bytes left", "500"},
      {"header_empty", le(uint64_t{0}), "begins with", "no bytes"},
      {"header_not_object", safetensors("[1]", 0), "begins with", "["},
      {"header_leading_space", safetensors(" {}", 0), "begins with", " "},
      {"header_not_json", safetensors("{\"w\":", 0), "valid JSON", "an error at byte"},
      {"header_after_json", safetensors("{} x", 0), "valid JSON", "an error at byte"},
      {"header_not_utf8", safetensors("{\"\xff\":" + entry("[]", "[0,4]") + "}", 4), "valid JSON",
       "an error at byte"},
      {"entry_not_object", safetensors("{\"w\":3}", 0), "an object", "a non-negative integer"},
      {"metadata_not_strings", safetensors("{\"__metadata__\":{\"a\":1}}", 0),
       "strings in __metadata__", "a non-negative integer"},
      {"metadata_key_twice", safetensors("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0),
       "each key once", "a second \"a\""},
      {"name_twice",
       safetensors("{\"w\":" + entry("[1]", "[0,4]") + ",\"w\":" + entry("[1]", "[4,8]") + "}", 8),
       "each name once", "a second one"},
      {"field_twice",
       one("{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}", 4),
       "each key once", "a second \"dtype\""},
      {"field_unknown", one("{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}", 4),
       "dtype, shape and data_offsets", "a key \"x\""},
      {"dtype_missing", one("{\"shape\":[],\"data_offsets\":[0,4]}", 4),
       "dtype, shape and data_offsets", "no dtype"},
      {"shape_missing", one("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}", 4),
       "dtype, shape and data_offsets", "no shape"},
      {"offsets_missing", one("{\"dtype\":\"F32\",\"shape\":[]}", 4),
       "dtype, shape and data_offsets", "no data_offsets"},
      {"dtype_not_string", one(entry("[1]", "[0,4]", "5"), 4), "a dtype name",
       "a non-negative integer"},
      {"dtype_unknown", one(entry("[1]", "[0,4]", "\"F4\""), 4), "a dtype of F64", "\"F4\""},
      {"shape_not_array", one(entry("4", "[0,16]"), 16), "a shape array", "a non-negative integer"},
      {"shape_negative", one(entry("[-4]", "[0,16]"), 16), "non-negative integers",
       "another JSON value"},
      {"shape_fraction", one(entry("[4.0]", "[0,16]"), 16), "non-negative integers",
       "another JSON value"},
      {"shape_nested", one(entry("[[4]]", "[0,16]"), 16), "non-negative integers", "an array"},
      {"shape_product_overflows", one(entry("[4294967296,4294967296]", "[0,16]"), 16),
       "below 2^63 bytes", "[4294967296, 4294967296]"},
      {"shape_beyond_int64", one(entry("[0,9223372036854775808]", "[0,0]"), 0), "below 2^63 bytes",
       "9223372036854775808"},
      {"shape_bytes_overflow", one(entry("[4611686018427387904]", "[0,16]"), 16),
       "below 2^63 bytes", "[4611686018427387904]"},
      {"offsets_not_array", one(entry("[4]", "16"), 16), "two data_offsets",
       "a non-negative integer"},
      {"offsets_one", one(entry("[4]", "[0]"), 16), "two data_offsets", "1 of them"},
      {"offsets_three", one(entry("[4]", "[0,16,16]"), 16), "two data_offsets", "more of them"},
      {"offsets_negative", one(entry("[4]", "[-1,15]"), 16), "non-negative integers",
       "another JSON value"},
      {"offsets_order", one(entry("[4]", "[16,0]"), 16), "data_offsets in order", "[16, 0]"},
      {"offsets_outside", one(entry("[4]", "[0,16]"), 12), "within 12 bytes of data", "[0, 16]"},
      {"offsets_huge", one(entry("[4]", "[18446744073709551600,18446744073709551615]"), 16),
       "within 16 bytes of data", "18446744073709551600"},
      {"size_too_small", one(entry("[4]", "[0,12]"), 12), "16 bytes for F32 [4]", "12 bytes"},
      {"size_too_large", one(entry("[2]", "[0,12]"), 12), "8 bytes for F32 [2]", "12 bytes"},
      {"hole", two(entry("[1]", "[0,4]"), entry("[1]", "[8,12]"), 12), "begin at 4", "8 (a hole)"},
      {"hole_at_start", one(entry("[1]", "[4,8]"), 8), "begin at 0", "4 (a hole)"},
      {"overlap", two(entry("[2]", "[0,8]"), entry("[2]", "[4,12]"), 12), "begin at 8",
       "4 (an overlap)"},
      {"trailing_bytes", one(entry("[4]", "[0,16]"), 20), "16 bytes, as the tensors have",
       "20 bytes"},
  };
}

class BrokenSafetensors : public testing::TestWithParam<Row> {};

TEST_P(BrokenSafetensors, IsRefused) {
  const Row& row = GetParam();
  const auto in_memory = SafetensorsFile::parse(bytes_of(row.bytes), "dir/broken.safetensors");
  ASSERT_FALSE(in_memory.ok());
  EXPECT_EQ(in_memory.error().code, ErrorCode::kBadInput);
  expect_message(in_memory.error().message, "dir/broken.safetensors", row.expected, row.got);
  const TempDir dir;
  dir.write("config.json", "{}");
  const std::string path = dir.write("model.safetensors", row.bytes);
  const auto source = open_weight_source(dir.path());
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  expect_message(source.error().message, path, row.expected, row.got);
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenSafetensors, testing::ValuesIn(safetensors_rows()), row_name);

TEST(BrokenSafetensorsTable, EveryPrefixIsRefused) {
  const std::string good = one(entry("[2,2]", "[0,16]"), 16);
  ASSERT_TRUE(SafetensorsFile::parse(bytes_of(good), "good").ok());
  for (size_t n = 0; n < good.size(); ++n) {
    const std::vector<char> prefix(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_FALSE(SafetensorsFile::parse(bytes_of({prefix.data(), n}), "cut").ok()) << n;
  }
}

// ---- the files around the weights ----

struct DirectoryRow {
  const char* name;
  const char* file;  // the file to write (content below) into a good directory
  std::string content;
  const char* expected;
  const char* got;
};

void PrintTo(const DirectoryRow& row, std::ostream* out) { *out << row.name; }

std::string directory_row_name(const testing::TestParamInfo<DirectoryRow>& info) {
  return info.param.name;
}

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<DirectoryRow> directory_rows() {
  return {
      {"config_empty", "config.json", "", "a JSON object", "an empty file"},
      {"config_not_json", "config.json", "{\"a\":}", "valid JSON", "byte"},
      {"config_not_object", "config.json", "[]", "a JSON object", "array"},
      {"config_lfs", "config.json", "version https://git-lfs.github.com/spec/v1\n", "a JSON object",
       "Git LFS"},
      {"quantization_not_object", "config.json", "{\"quantization\":4}", "an object", "number"},
      {"quantization_bits", "config.json", "{\"quantization\":{\"bits\":\"4\"}}", "an integer",
       "4"},
      {"quantization_group", "config.json", "{\"quantization\":{\"group_size\":-1}}", "an integer",
       "-1"},
      {"quantization_mode", "config.json", "{\"quantization\":{\"mode\":4}}", "a string", "4"},
      {"index_empty", kIndex, "", "a JSON object", "an empty file"},
      {"index_not_json", kIndex, "{", "valid JSON", "byte"},
      {"index_not_object", kIndex, "[]", "a JSON object", "an array"},
      {"index_without_map", kIndex, "{}", "a weight_map", "none"},
      {"index_map_not_object", kIndex, "{\"weight_map\":[]}", "an object", "an array"},
      {"index_map_empty", kIndex, "{\"weight_map\":{}}", "at least one tensor", "none"},
      {"index_map_twice", kIndex, "{\"weight_map\":{},\"weight_map\":{}}", "one weight_map",
       "a second one"},
      {"index_value", kIndex, "{\"weight_map\":{\"w\":1}}", "a file name", "integer"},
      {"index_name_twice", kIndex,
       "{\"weight_map\":{\"w\":\"model.safetensors\",\"w\":\"model.safetensors\"}}",
       "each name once", "a second one"},
      {"index_path_up", kIndex, "{\"weight_map\":{\"w\":\"../model.safetensors\"}}",
       "a file name without", "../model.safetensors"},
      {"index_path_dots", kIndex, "{\"weight_map\":{\"w\":\"..\"}}", "a file name without",
       "\"..\""},
      {"index_path_absolute", kIndex, "{\"weight_map\":{\"w\":\"/etc/passwd\"}}",
       "a file name without", "/etc/passwd"},
      {"index_missing_file", kIndex, "{\"weight_map\":{\"w\":\"model-2.safetensors\"}}",
       "the file \"model-2.safetensors\"", "no such file"},
      {"index_missing_tensor", kIndex, "{\"weight_map\":{\"v\":\"model.safetensors\"}}",
       "model.safetensors", "no such tensor there"},
  };
}

class BrokenDirectory : public testing::TestWithParam<DirectoryRow> {};

TEST_P(BrokenDirectory, IsRefused) {
  const DirectoryRow& row = GetParam();
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("model.safetensors", one(entry("[4]", "[0,16]"), 16));
  ASSERT_TRUE(open_weight_source(dir.path()).ok());
  const std::string path = dir.write(row.file, row.content);
  const auto source = open_weight_source(dir.path());
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  const std::string& message = source.error().message;
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_NE(message.find(row.expected), std::string::npos) << message;
  EXPECT_NE(message.find(row.got), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenDirectory, testing::ValuesIn(directory_rows()),
                         directory_row_name);

TEST(BrokenDirectoryTable, WhatIsMissingIsNamed) {
  const TempDir dir;
  auto source = open_weight_source(dir.path());
  ASSERT_FALSE(source.ok());
  EXPECT_NE(source.error().message.find("no config.json in " + dir.path()), std::string::npos);
  dir.write("config.json", "{}");
  source = open_weight_source(dir.path());
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, dir.path(), "at least one *.safetensors", "none");
  const std::string weights = one(entry("[4]", "[0,16]"), 16);
  dir.write("a.safetensors", weights);
  EXPECT_TRUE(open_weight_source(dir.path()).ok());
  dir.write("b.safetensors", weights);
  source = open_weight_source(dir.path());
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, dir.file("b.safetensors"), "each tensor once",
                 "also in " + dir.file("a.safetensors"));
  source = open_weight_source(dir.file("a.safetensors"));
  ASSERT_FALSE(source.ok());
  expect_message(source.error().message, "a.safetensors", "the directory",
                 "a single .safetensors file");
  source = open_weight_source(dir.file("none.gguf"));
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  EXPECT_NE(source.error().message.find(dir.file("none.gguf")), std::string::npos);
}

}  // namespace
}  // namespace markbase::formats
