// What holds for every source: hints are harmless, and a file that shrinks is an error, not a
// crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "format_files.h"
#include "formats/gguf/gguf_source.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/safetensors/safetensors_file.h"
#include "formats/safetensors/safetensors_writer.h"

namespace markbase::formats {
namespace {

constexpr int64_t kCols = 1024;
constexpr int64_t kRows = 64;
constexpr size_t kDataBytes = kCols * kRows * 4;

std::string gguf_bytes() {
  GgufWriter writer;
  writer.add_tensor("w", {kRows, kCols}, 0);
  return writer.header() + std::string(kDataBytes, 'x');
}

std::string safetensors_bytes() {
  SafetensorsWriter writer;
  writer.add_tensor("w", {kRows, kCols}, tensor::DType::kF32);
  return writer.header() + std::string(kDataBytes, 'x');
}

struct Checkpoint {
  TempDir dir;
  std::string weights;  // the file with the tensor
  std::unique_ptr<WeightSource> source;

  explicit Checkpoint(FileKind kind) {
    if (kind == FileKind::kGguf) {
      weights = dir.write("m.gguf", gguf_bytes());
    } else {
      dir.write("config.json", "{}");
      weights = dir.write("model.safetensors", safetensors_bytes());
    }
    auto opened = open_weight_source(kind == FileKind::kGguf ? weights : dir.path());
    EXPECT_TRUE(opened.ok());
    source = *std::move(opened);
  }
};

int64_t sum(std::span<const std::byte> bytes) {
  int64_t total = 0;
  for (const std::byte b : bytes) total += static_cast<int64_t>(b);
  return total;
}

class AnySource : public testing::TestWithParam<FileKind> {};

TEST_P(AnySource, ReleaseAndPrefetchAreHarmless) {
  const Checkpoint checkpoint(GetParam());
  const WeightSource& source = *checkpoint.source;
  const std::span<const std::byte> data = source.find("w")->data;
  const int64_t before = sum(data);
  source.prefetch(data);
  source.release(data);
  source.release(data.subspan(5, 1));
  source.release({});
  EXPECT_EQ(sum(data), before);
  // Memory that is not the source's is left alone.
  const std::vector<std::byte> own(1 << 20, std::byte{7});
  source.release(own);
  EXPECT_EQ(sum(own), 7 << 20);
  EXPECT_TRUE(source.check_intact().ok());
}

TEST_P(AnySource, AFileCutWhileOpenIsAnError) {
  const Checkpoint checkpoint(GetParam());
  const WeightSource& source = *checkpoint.source;
  const std::span<const std::byte> data = source.find("w")->data;
  EXPECT_TRUE(source.check_intact().ok());
  ASSERT_EQ(truncate(checkpoint.weights.c_str(), 4096), 0);
  sum(data);  // what is gone reads as zeros
  EXPECT_EQ(data.back(), std::byte{0});
  const Result<void> intact = source.check_intact();
  ASSERT_FALSE(intact.ok());
  EXPECT_EQ(intact.error().code, ErrorCode::kBadInput);
  expect_message(intact.error().message, checkpoint.weights, "bytes as when it was opened", "4096");
}

INSTANTIATE_TEST_SUITE_P(Both, AnySource, testing::Values(FileKind::kGguf, FileKind::kSafetensors));

// Files that the packages of the formats' own authors wrote.
class GoldenPackageFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream in(dir_ + "/expected.json");
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    auto json = base::parse_json(text, "expected.json");
    ASSERT_TRUE(json.ok());
    expected_ = *std::move(json);
  }

  static std::string hex(std::span<const std::byte> bytes) {
    std::string out;
    for (const std::byte b : bytes) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += kDigits[static_cast<int>(b) >> 4];
      out += kDigits[static_cast<int>(b) & 15];
    }
    return out;
  }

  void compare(std::span<const TensorInfo> tensors, const base::Json& expected) {
    EXPECT_EQ(tensors.size(), expected.size());
    for (const TensorInfo& tensor : tensors) {
      const base::Json& e = expected.at(tensor.name);
      EXPECT_EQ(tensor.shape, e.at("shape").get<std::vector<int64_t>>()) << tensor.name;
      EXPECT_EQ(hex(tensor.data), e.at("bytes").get<std::string>()) << tensor.name;
      if (e.at("type").is_string()) {
        EXPECT_EQ(tensor.type_name, e.at("type").get<std::string>()) << tensor.name;
      }
    }
  }

  const std::string dir_ = std::string(MARKBASE_GOLDEN_DIR) + "/formats";
  base::Json expected_;
};

TEST_F(GoldenPackageFiles, Gguf) {
  const auto source = GgufSource::open(dir_ + "/package.gguf");
  ASSERT_TRUE(source.ok()) << source.error().message;
  compare((*source)->tensors(), expected_.at("gguf"));
  const base::Json& m = (*source)->config();
  EXPECT_EQ(m.at("general.architecture"), "gemma3");
  EXPECT_EQ(m.at("k.u8"), 200);
  EXPECT_EQ(m.at("k.i8"), -100);
  EXPECT_EQ(m.at("k.u16"), 60000);
  EXPECT_EQ(m.at("k.i16"), -30000);
  EXPECT_EQ(m.at("k.u32"), 4000000000);
  EXPECT_EQ(m.at("k.i32"), -2000000000);
  EXPECT_EQ(m.at("k.u64").get<uint64_t>(), (uint64_t{1} << 63) + 5);
  EXPECT_EQ(m.at("k.i64").get<int64_t>(), -(int64_t{1} << 62));
  EXPECT_EQ(m.at("k.f32"), 0.5);
  EXPECT_EQ(m.at("k.f64"), 1e-300);
  EXPECT_EQ(m.at("k.bool"), true);
  EXPECT_EQ(m.at("k.string"), "ein W\u00f6rtchen \u2581");
  EXPECT_EQ(m.at("k.strings"), base::Json({"a", "", "\u2581the"}));
  EXPECT_EQ(m.at("k.ints"), base::Json({1, -2, 3}));
  EXPECT_EQ(m.at("k.floats"), base::Json({0.25, -0.5}));
  EXPECT_EQ(m.at("k.bools"), base::Json({true, false, true}));
}

TEST_F(GoldenPackageFiles, Safetensors) {
  const auto file = SafetensorsFile::open(dir_ + "/package.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  compare(file->tensors(), expected_.at("safetensors"));
  EXPECT_EQ(file->metadata().at("format"), "pt");
}

}  // namespace
}  // namespace markbase::formats
