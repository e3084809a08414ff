// One broken view a rule: validate() says no, names the tensor, and says what it expected and got.
#include <limits>

#include "quant_test_util.h"

namespace markbase::quant {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
const std::vector<std::byte> kBytes(4096);

std::span<const std::byte> bytes(size_t count) { return std::span(kBytes).first(count); }

WeightView blocks(Format format, int64_t rows, int64_t cols, size_t count) {
  return {.format = format, .rows = rows, .cols = cols, .data = bytes(count)};
}

// A good affine weight [2, 128], 4 bits, group 64, BF16: 128 bytes of words, 8 of scales and
// biases.
WeightView affine() {
  return {Format::kAffine, 2, 128, bytes(128), 4, 64, tensor::DType::kBF16, bytes(8), bytes(8)};
}

// A good nvfp4 weight [2, 64]: 64 bytes of words, a scale byte each 16.
WeightView nvfp4() {
  return {Format::kMlxNVFP4, 2, 64, bytes(64), 4, 16, tensor::DType::kU8, bytes(8), {}};
}

struct Broken {
  const char* rule;
  WeightView weight;
  const char* message;  // must be part of the error's
};

template <class Change>
WeightView changed(Change change, WeightView weight = affine()) {
  change(weight);
  return weight;
}

TEST(Validate, RefusesBrokenViews) {
  using tensor::DType;
  using View = WeightView;
  const Broken kTable[] = {
      {"no rows", blocks(Format::kBF16, 0, 8, 0), "at least one row"},
      {"no columns", blocks(Format::kBF16, 8, 0, 0), "at least one row"},
      {"negative rows", blocks(Format::kBF16, -2, 4, 16), "at least one row"},
      {"negative columns", blocks(Format::kQ4_0, 2, -32, 36), "at least one row"},
      {"both negative", blocks(Format::kF32, -2, -2, 16), "at least one row"},
      {"product overflows", blocks(Format::kF16, kHuge, 2, 4), "63 bits"},
      {"product wraps to the size", blocks(Format::kF8E4M3, int64_t{1} << 32, int64_t{1} << 32, 0),
       "63 bits"},
      {"bytes overflow", blocks(Format::kF32, int64_t{1} << 31, int64_t{1} << 31, 0), "63 bits"},
      {"huge columns", blocks(Format::kQ4_K, 1, kHuge - 255, 144), "63 bits"},
      {"not whole blocks of 32", blocks(Format::kQ8_0, 1, 33, 34), "multiples of 32, got 33"},
      {"not whole blocks of 256", blocks(Format::kQ4_K, 1, 288, 162), "multiples of 256, got 288"},
      {"a byte too few", blocks(Format::kQ6_K, 2, 256, 419), "expected 420 bytes of data, got 419"},
      {"a byte too many", blocks(Format::kF32, 1, 2, 9), "expected 8 bytes of data, got 9"},
      {"scales beside blocks", changed([](View& w) { w.format = Format::kQ4_0; }), "no separate"},
      {"unknown format", blocks(static_cast<Format>(77), 1, 32, 32), "unknown format 77"},
      {"bits 0", changed([](View& w) { w.bits = 0; }), "8 bits, got 0"},
      {"bits 1", changed([](View& w) { w.bits = 1; }), "8 bits, got 1"},
      {"bits 7", changed([](View& w) { w.bits = 7; }), "8 bits, got 7"},
      {"bits -4", changed([](View& w) { w.bits = -4; }), "8 bits, got -4"},
      {"group 0", changed([](View& w) { w.group_size = 0; }), "128, got 0"},
      {"group 16", changed([](View& w) { w.group_size = 16; }), "128, got 16"},
      {"group -64", changed([](View& w) { w.group_size = -64; }), "128, got -64"},
      {"scale type", changed([](View& w) { w.scale_dtype = DType::kI32; }), "BF16, got I32"},
      {"half a group", changed([](View& w) { w.cols = 96; }), "multiples of 64, got 96"},
      {"few words", changed([](View& w) { w.data = bytes(124); }), "128 bytes of packed words"},
      {"more bits than words", changed([](View& w) { w.bits = 5; }), "160 bytes of packed words"},
      {"few scales", changed([](View& w) { w.scales = bytes(6); }), "8 bytes of scales, got 6"},
      {"no biases", changed([](View& w) { w.biases = {}; }), "8 bytes of biases, got 0"},
      {"wider scale type", changed([](View& w) { w.scale_dtype = DType::kF32; }),
       "16 bytes of scales, got 8"},
      {"other group", changed([](View& w) { w.group_size = 32; }), "16 bytes of scales, got 8"},
      {"bits of another mode", changed([](View& w) { w.bits = 8; }, nvfp4()),
       "expected 4 bits in groups of 16, got 8"},
      {"group of another mode", changed([](View& w) { w.group_size = 32; }, nvfp4()),
       "in groups of 16, got 4 in groups of 32"},
      {"scales as floats", changed([](View& w) { w.scale_dtype = DType::kF16; }, nvfp4()),
       "type U8, got F16"},
      {"biases", changed([](View& w) { w.biases = bytes(8); }, nvfp4()), "expected no biases"},
      {"half a unit", changed([](View& w) { w.cols = 48; }, nvfp4()), "multiples of 32, got 48"},
      {"few scale bytes", changed([](View& w) { w.scales = bytes(7); }, nvfp4()),
       "8 bytes of scales, got 7"},
      {"few nibbles", changed([](View& w) { w.data = bytes(63); }, nvfp4()),
       "64 bytes of packed words, got 63"},
      {"affine overflow", changed([](View& w) { w.rows = kHuge / 64; }), "63 bits"},
  };
  for (const Broken& broken : kTable) {
    const Result<void> result = validate(broken.weight, "blk.3.attn_q.weight");
    ASSERT_FALSE(result.ok()) << broken.rule;
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput) << broken.rule;
    const std::string& message = result.error().message;
    EXPECT_NE(message.find("blk.3.attn_q.weight"), std::string::npos) << message;
    EXPECT_NE(message.find(broken.message), std::string::npos) << broken.rule << ": " << message;
  }
}

TEST(Validate, AcceptsGoodOnes) {
  EXPECT_TRUE(validate(affine(), "w").ok());
  EXPECT_TRUE(validate(nvfp4(), "w").ok());
  EXPECT_TRUE(validate(blocks(Format::kQ4_K, 2, 512, 576), "w").ok());
  EXPECT_TRUE(validate(blocks(Format::kBF16, 3, 5, 30), "w").ok());
}

}  // namespace
}  // namespace markbase::quant
