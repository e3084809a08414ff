// The linear products of the CPU backend: every format and instruction set against a plain program
// of the rule of docs/arithmetic.md (equal to the last bit), and against decoded weights in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/thread_pool.h"
#include "ops/backend.h"
#include "quant/encode.h"
#include "quant/weight_view.h"

namespace markbase::backends {
namespace {

using quant::Format;
using quant::WeightView;
using tensor::DType;

// A weight with its bytes.
struct TestWeight {
  std::string name;
  WeightView view;
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
};

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

std::unique_ptr<TestWeight> block_weight(Format format, int64_t rows, int64_t cols, uint64_t seed) {
  auto w = std::make_unique<TestWeight>();
  w->name = std::string(quant::format_name(format));
  const auto shape = quant::block_shape(format);
  if (shape.elements > 1) {
    w->data = quant::random_blocks(format, seed, rows * cols / shape.elements);
  } else if (format == Format::kF8E4M3) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < rows * cols; ++i) {
      auto code = static_cast<uint8_t>(random());
      if ((code & 0x7f) == 0x7f) code = 0;
      w->data.push_back(std::byte{code});
    }
  } else {
    const auto values = random_floats(rows * cols, seed);
    w->data.resize(static_cast<size_t>(rows * cols * shape.bytes));
    EXPECT_TRUE(quant::encode_row(format, values, w->data).ok());
  }
  w->view.format = format;
  w->view.rows = rows;
  w->view.cols = cols;
  w->view.data = w->data;
  return w;
}

std::unique_ptr<TestWeight> affine_weight(int bits, int group, DType dtype, int64_t rows,
                                          int64_t cols, uint64_t seed) {
  auto w = std::make_unique<TestWeight>();
  w->name = "affine " + std::to_string(bits) + "/" + std::to_string(group);
  const auto values = random_floats(rows * cols, seed);
  const auto row_bytes = static_cast<size_t>(cols * bits / 8);
  const auto scale_bytes = static_cast<size_t>(cols / group) * tensor::dtype_bytes(dtype);
  w->data.resize(static_cast<size_t>(rows) * row_bytes);
  w->scales.resize(static_cast<size_t>(rows) * scale_bytes);
  w->biases.resize(static_cast<size_t>(rows) * scale_bytes);
  for (int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<size_t>(r);
    const auto row =
        std::span(values).subspan(i * static_cast<size_t>(cols), static_cast<size_t>(cols));
    EXPECT_TRUE(quant::encode_affine_row(bits, group, dtype, row,
                                         std::span(w->data).subspan(i * row_bytes, row_bytes),
                                         std::span(w->scales).subspan(i * scale_bytes, scale_bytes),
                                         std::span(w->biases).subspan(i * scale_bytes, scale_bytes))
                    .ok());
  }
  w->view = {Format::kAffine, rows, cols, w->data, bits, group, dtype, w->scales, w->biases};
  return w;
}

// One of MLX's float modes: all codes, scale bytes from subnormal powers of two up to moderate
// ones.
std::unique_ptr<TestWeight> float_mode_weight(Format format, int64_t rows, int64_t cols,
                                              uint64_t seed) {
  auto w = std::make_unique<TestWeight>();
  w->name = std::string(quant::format_name(format));
  const bool eight_bits = format == Format::kMlxMXFP8;
  const bool e4m3_scales = format == Format::kMlxNVFP4;
  const int group = e4m3_scales ? 16 : 32;
  std::mt19937_64 random(seed);
  const auto finite_e4m3 = [&] {
    const auto code = static_cast<uint8_t>(random());
    return (code & 0x7f) == 0x7f ? uint8_t{0} : code;
  };
  for (int64_t i = 0; i < rows * cols / (eight_bits ? 1 : 2); ++i)
    w->data.push_back(std::byte{eight_bits ? finite_e4m3() : static_cast<uint8_t>(random())});
  for (int64_t i = 0; i < rows * cols / group; ++i) {
    const auto power = static_cast<uint8_t>(i % 7 == 0 ? random() % 3 : 110 + random() % 20);
    w->scales.push_back(std::byte{e4m3_scales ? finite_e4m3() : power});
  }
  w->view = {format, rows, cols, w->data, eight_bits ? 8 : 4, group, DType::kU8, w->scales, {}};
  return w;
}

// Activations of different sizes, with segments of zeros and single large values.
std::vector<float> random_activations(int64_t tokens, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(tokens * cols));
  for (int64_t t = 0; t < tokens; ++t) {
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 12) - 6);
    for (int64_t k = 0; k < cols; ++k) {
      float v = size * normal(random);
      if (t % 5 == 3 && k / 256 % 2 == 0) v = 0.0f;
      if (random() % 500 == 0) v *= 100.0f;
      x[static_cast<size_t>(t * cols + k)] = v;
    }
  }
  return x;
}

// --- the rule, in plain loops ---

// x16 and a of one segment.
void quantise_plain(const float* x, int64_t count, float limit, int32_t* codes, float* a) {
  float largest = 0.0f;
  bool finite = true;
  for (int64_t k = 0; k < count; ++k) {
    finite = finite && std::isfinite(x[k]);
    largest = std::max(largest, std::fabs(x[k]));
  }
  *a = finite ? largest / limit : std::numeric_limits<float>::quiet_NaN();
  for (int64_t k = 0; k < count; ++k) {
    const float q = !finite || *a == 0.0f ? 0.0f : std::nearbyint(x[k] / *a);
    codes[k] = static_cast<int32_t>(std::min(std::max(q, -limit), limit));
  }
}

float grouped_product(const quant::GroupedLayout& layout, const std::vector<int32_t>& w,
                      const std::vector<float>& scales, const std::vector<float>& offsets,
                      const float* x, float limit) {
  const auto cols = static_cast<int64_t>(w.size());
  float total = 0.0f;
  float span = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += 256) {
    const int64_t count = std::min<int64_t>(256, cols - begin);
    int32_t codes[256];
    float a;
    quantise_plain(x + begin, count, limit, codes, &a);
    float segment = 0.0f;
    for (int64_t k = 0; k < count; k += layout.group_size) {
      int64_t dot = 0;
      int64_t sum = 0;
      for (int64_t i = k; i < k + layout.group_size; ++i) {
        dot += int64_t{w[static_cast<size_t>(begin + i)]} * codes[i];
        sum += codes[i];
      }
      const auto g = static_cast<size_t>((begin + k) / layout.group_size);
      segment = std::fma(scales[g], static_cast<float>(dot), segment);
      if (layout.has_offset) segment = std::fma(offsets[g], static_cast<float>(sum), segment);
    }
    span = std::fma(a, segment, span);
    if (begin / 256 % 4 == 3 || begin + 256 >= cols) {
      total += span;
      span = 0.0f;
    }
  }
  return total;
}

float float_product(const std::vector<float>& w, const float* x) {
  const auto cols = static_cast<int64_t>(w.size());
  float total = 0.0f;
  float span = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += 256) {
    float segment = 0.0f;
    for (int64_t k = begin; k < std::min(begin + 256, cols); ++k) {
      segment = std::fma(w[static_cast<size_t>(k)], x[k], segment);
    }
    span += segment;
    if (begin / 256 % 4 == 3 || begin + 256 >= cols) {
      total += span;
      span = 0.0f;
    }
  }
  return total;
}

std::vector<float> expected_product(const WeightView& weight, const std::vector<float>& x,
                                    int64_t tokens, float limit) {
  const auto layout = quant::grouped_layout(weight);
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> y(static_cast<size_t>(tokens * weight.rows));
  for (int64_t n = 0; n < weight.rows; ++n) {
    std::vector<float> values(cols);
    std::vector<uint8_t> codes(cols);
    std::vector<int32_t> integers(cols);
    std::vector<float> scales;
    std::vector<float> offsets;
    if (layout) {
      scales.resize(cols / static_cast<size_t>(layout->group_size));
      offsets.resize(scales.size());
      quant::unpack_codes(weight, n, codes);
      quant::unpack_scales(weight, n, scales, offsets);
      for (size_t k = 0; k < cols; ++k) {
        integers[k] = layout->codebook == quant::Codebook::kNone
                          ? codes[k] - layout->zero_point
                          : quant::codebook_values(layout->codebook)[codes[k]];
      }
    } else {
      quant::decode_row(weight, n, values);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = x.data() + t * weight.cols;
      y[static_cast<size_t>(t * weight.rows + n)] =
          layout ? grouped_product(*layout, integers, scales, offsets, row, limit)
                 : float_product(values, row);
    }
  }
  return y;
}

// --- running the backend ---

struct Machine {
  Machine(CpuIsa isa, int threads, ActivationPrecision precision = ActivationPrecision::k16)
      : pool(threads), backend(make_cpu_backend(pool, {isa, precision})) {}

  std::unique_ptr<ops::PackedWeight> pack(const TestWeight& weight) {
    auto packed = backend->pack(weight.view, weight.name, [](int64_t, int64_t) {});
    EXPECT_TRUE(packed.ok());
    return std::move(packed).value();
  }

  std::vector<float> product(const ops::PackedWeight& weight, const std::vector<float>& x,
                             int64_t tokens) {
    EXPECT_TRUE(backend->plan({.max_rows = tokens, .max_linear_cols = weight.cols()}).ok());
    std::vector<float> y(static_cast<size_t>(tokens * weight.rows()), -1.0f);
    const ops::LinearTarget target = {
        &weight, tensor::make_view(y.data(), DType::kF32, {tokens, weight.rows()})};
    const auto x_view =
        tensor::make_view(const_cast<float*>(x.data()), DType::kF32, {tokens, weight.cols()});
    backend->linear({x_view, {&target, 1}});
    return y;
  }

  base::ThreadPool pool;
  std::unique_ptr<ops::Backend> backend;
};

// Equal bytes; NaN would differ from itself otherwise.
void expect_same(const std::vector<float>& expected, const std::vector<float>& got, size_t count,
                 const std::string& what) {
  ASSERT_GE(expected.size(), count);
  ASSERT_GE(got.size(), count);
  if (std::memcmp(expected.data(), got.data(), count * sizeof(float)) == 0) return;
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(&expected[i], &got[i], sizeof(float)) == 0) continue;
    FAIL() << what << ": element " << i << " of " << count << ": expected " << expected[i]
           << ", got " << got[i];
  }
}

std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> isas;
  for (CpuIsa isa : all_cpu_isas()) {
    if (cpu_supports(isa)) isas.push_back(isa);
  }
  return isas;
}

// Every format at shapes with rows beyond whole blocks of 16 and short last segments.
std::vector<std::unique_ptr<TestWeight>> all_weights() {
  std::vector<std::unique_ptr<TestWeight>> weights;
  uint64_t seed = 1;
  for (Format format : {Format::kF32, Format::kF16, Format::kBF16, Format::kF8E4M3}) {
    for (auto [rows, cols] : {std::pair{1, 1}, {37, 333}, {150, 1300}}) {
      weights.push_back(block_weight(format, rows, cols, seed++));
    }
  }
  for (Format format : {Format::kQ4_0, Format::kQ4_1, Format::kQ5_0, Format::kQ5_1, Format::kQ8_0,
                        Format::kIQ4_NL, Format::kMXFP4}) {
    for (auto [rows, cols] : {std::pair{1, 32}, {37, 640}, {70, 2080}}) {
      weights.push_back(block_weight(format, rows, cols, seed++));
    }
  }
  for (Format format : {Format::kQ2_K, Format::kQ3_K, Format::kQ4_K, Format::kQ5_K, Format::kQ6_K,
                        Format::kIQ4_XS}) {
    for (auto [rows, cols] : {std::pair{1, 256}, {37, 768}, {70, 2304}}) {
      weights.push_back(block_weight(format, rows, cols, seed++));
    }
  }
  for (Format format : {Format::kMlxMXFP4, Format::kMlxMXFP8, Format::kMlxNVFP4}) {
    for (auto [rows, cols] : {std::pair{1, 32}, {37, 640}, {150, 2080}}) {
      weights.push_back(float_mode_weight(format, rows, cols, seed++));
    }
  }
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    weights.push_back(affine_weight(bits, 32, DType::kF16, 37, 2080, seed++));
    weights.push_back(affine_weight(bits, 64, DType::kBF16, 37, 640, seed++));
    weights.push_back(affine_weight(bits, 128, DType::kF32, 21, 640, seed++));
  }
  return weights;
}

constexpr int64_t kTokens = 130;
constexpr int64_t kTokenCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                    11, 12, 13, 14, 16, 17, 33, 64, 97, kTokens};

TEST(CpuLinear, EveryFormatAndInstructionSetGivesTheBitsOfTheRule) {
  std::vector<std::unique_ptr<Machine>> machines;
  for (CpuIsa isa : supported_isas()) machines.push_back(std::make_unique<Machine>(isa, 2));
  for (const auto& weight : all_weights()) {
    const auto x = random_activations(kTokens, weight->view.cols, 7);
    const auto expected = expected_product(weight->view, x, kTokens, 32512.0f);
    for (size_t m = 0; m < machines.size(); ++m) {
      const auto packed = machines[m]->pack(*weight);
      for (int64_t tokens : kTokenCounts) {
        const std::string what = weight->name + " [" + std::to_string(weight->view.rows) + ", " +
                                 std::to_string(weight->view.cols) + "] " + std::to_string(tokens) +
                                 " rows, " + std::string(cpu_isa_name(supported_isas()[m]));
        expect_same(expected, machines[m]->product(*packed, x, tokens),
                    static_cast<size_t>(tokens * weight->view.rows), what);
      }
    }
  }
}

TEST(CpuLinear, EightBitActivationsFollowTheirRule) {
  for (CpuIsa isa : supported_isas()) {
    Machine machine(isa, 2, ActivationPrecision::kQ8);
    for (Format format :
         {Format::kQ4_0, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K, Format::kIQ4_NL}) {
      const auto weight = block_weight(format, 37, 768, 5);
      const auto x = random_activations(33, 768, 9);
      const auto packed = machine.pack(*weight);
      const auto expected = expected_product(weight->view, x, 33, 127.0f);
      for (int64_t tokens : {1, 4, 8, 33}) {
        expect_same(expected, machine.product(*packed, x, tokens), static_cast<size_t>(tokens * 37),
                    weight->name + " q8 " + std::string(cpu_isa_name(isa)));
      }
    }
  }
}

TEST(CpuLinear, ThreadsDoNotChangeABit) {
  for (CpuIsa isa : supported_isas()) {
    for (Format format : {Format::kQ4_K, Format::kQ8_0, Format::kF16}) {
      const auto weight = block_weight(format, 200, 1280, 3);
      const auto x = random_activations(100, 1280, 4);
      for (int64_t tokens : {1, 4, 100}) {
        std::vector<float> first;
        for (int threads : {1, 2, 3, 7}) {
          Machine machine(isa, threads);
          const auto y = machine.product(*machine.pack(*weight), x, tokens);
          if (first.empty()) first = y;
          expect_same(first, y, y.size(),
                      weight->name + " with " + std::to_string(threads) + " threads");
        }
      }
    }
  }
}

// |y - exact| <= what rounding x and the float steps can do: a / 2 a value of x, and one half unit
// for each of the steps through which a term passes.
TEST(CpuLinear, StaysWithinTheBoundOfTheExactProduct) {
  Machine machine(best_cpu_isa(), 2);
  for (const auto& weight : all_weights()) {
    const WeightView& view = weight->view;
    const int64_t tokens = 9;
    const auto x = random_activations(tokens, view.cols, 11);
    const auto y = machine.product(*machine.pack(*weight), x, tokens);
    const bool grouped = quant::grouped_layout(view).has_value();
    std::vector<float> row(static_cast<size_t>(view.cols));
    double worst = 0.0;
    for (int64_t n = 0; n < view.rows; ++n) {
      quant::decode_row(view, n, row);
      for (int64_t t = 0; t < tokens; ++t) {
        double exact = 0.0;
        double terms = 0.0;     // sum |w x|
        double rounding = 0.0;  // sum |w| a / 2
        for (int64_t k = 0; k < view.cols; ++k) {
          const double w = row[static_cast<size_t>(k)];
          const double v = x[static_cast<size_t>(t * view.cols + k)];
          exact += w * v;
          terms += std::fabs(w * v);
        }
        if (grouped) {
          for (int64_t begin = 0; begin < view.cols; begin += 256) {
            double largest = 0.0;
            double weights = 0.0;
            for (int64_t k = begin; k < std::min(begin + 256, view.cols); ++k) {
              largest =
                  std::max(largest, std::fabs(double{x[static_cast<size_t>(t * view.cols + k)]}));
              weights += std::fabs(double{row[static_cast<size_t>(k)]});
            }
            rounding += weights * largest / 32512.0 / 2.0;
          }
        }
        // Offsets and codes may cancel: the parts of a value are at most 2^8 times the value's own
        // range.
        const double steps = grouped ? 64.0 * 256.0 : 256.0 + 16.0;
        const double bound = rounding * 1.001 + steps * 0x1p-24 * terms + 1e-30;
        const double error = std::fabs(double{y[static_cast<size_t>(t * view.rows + n)]} - exact);
        worst = std::max(worst, error / bound);
      }
    }
    EXPECT_LE(worst, 1.0) << weight->name << " used this share of its bound";
  }
}

TEST(CpuLinear, SeveralTargetsShareOneInput) {
  for (CpuIsa isa : supported_isas()) {
    Machine machine(isa, 2);
    const auto w0 = block_weight(Format::kQ4_K, 40, 512, 1);
    const auto w1 = block_weight(Format::kQ6_K, 24, 512, 2);
    const auto w2 = block_weight(Format::kBF16, 17, 512, 3);
    const auto p0 = machine.pack(*w0);
    const auto p1 = machine.pack(*w1);
    const auto p2 = machine.pack(*w2);
    for (int64_t tokens : {1, 20}) {
      // Rows of x and y stand apart.
      const auto x = random_activations(tokens, 600, 5);
      std::vector<float> dense;
      for (int64_t t = 0; t < tokens; ++t)
        dense.insert(dense.end(), x.begin() + t * 600, x.begin() + t * 600 + 512);
      std::vector<float> y(static_cast<size_t>(tokens * 100), -7.0f);
      const auto all = tensor::make_view(y.data(), DType::kF32, {tokens, 100});
      const auto column = [&](int64_t begin, int64_t count) {
        auto view = all;
        view.shape[1] = count;
        view.data = y.data() + begin;
        return view;
      };
      const ops::LinearTarget targets[] = {
          {p0.get(), column(0, 40)}, {p1.get(), column(41, 24)}, {p2.get(), column(66, 17)}};
      auto x_view = tensor::make_view(const_cast<float*>(x.data()), DType::kF32, {tokens, 600});
      x_view.shape[1] = 512;
      ASSERT_TRUE(machine.backend->plan({.max_rows = tokens, .max_linear_cols = 512}).ok());
      machine.backend->linear({x_view, targets});
      int64_t begin = 0;
      for (const auto* weight : {w0.get(), w1.get(), w2.get()}) {
        const auto expected = expected_product(weight->view, dense, tokens, 32512.0f);
        for (int64_t t = 0; t < tokens; ++t) {
          const std::vector<float> want(expected.begin() + t * weight->view.rows,
                                        expected.begin() + (t + 1) * weight->view.rows);
          const float* got = y.data() + t * 100 + begin;
          expect_same(want, std::vector<float>(got, got + weight->view.rows), want.size(),
                      weight->name);
          EXPECT_EQ(y[static_cast<size_t>(t * 100 + begin + weight->view.rows)], -7.0f)
              << "written past the rows";
        }
        begin += weight->view.rows + 1;
      }
    }
  }
}

// Kernels may read rows that x does not have, where the rows of an earlier step still stand.
TEST(CpuLinear, RowsOfAnEarlierStepAreNotUsed) {
  constexpr int64_t kRows = 16;
  const auto weight = block_weight(Format::kQ4_0, 64, 512, 3);
  const auto x = random_activations(kRows, 512, 4);
  const auto expected = expected_product(weight->view, x, kRows, 32512.0f);
  const std::vector<float> bad(x.size(), std::numeric_limits<float>::infinity());
  for (CpuIsa isa : supported_isas()) {
    Machine machine(isa, 1);
    const auto packed = machine.pack(*weight);
    ASSERT_TRUE(machine.backend->plan({.max_rows = kRows, .max_linear_cols = 512}).ok());
    std::vector<float> y(static_cast<size_t>(kRows * 64));
    const auto step = [&](const std::vector<float>& rows, int64_t tokens) {
      const ops::LinearTarget target = {packed.get(),
                                        tensor::make_view(y.data(), DType::kF32, {tokens, 64})};
      machine.backend->linear(
          {tensor::make_view(const_cast<float*>(rows.data()), DType::kF32, {tokens, 512}),
           {&target, 1}});
    };
    for (int64_t tokens = 1; tokens <= kRows; ++tokens) {
      step(bad, kRows);
      ASSERT_TRUE(std::isnan(y[0]));
      step(x, tokens);
      expect_same(expected, y, static_cast<size_t>(tokens * 64),
                  std::to_string(tokens) + " rows, " + std::string(cpu_isa_name(isa)));
    }
  }
}

TEST(CpuLinear, ValuesThatAreNotFiniteGiveNan) {
  for (CpuIsa isa : supported_isas()) {
    Machine machine(isa, 1);
    const auto weight = block_weight(Format::kQ4_K, 20, 512, 1);
    const auto packed = machine.pack(*weight);
    for (float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      auto x = random_activations(20, 512, 6);
      x[512 * 3 + 300] = bad;
      const auto expected = expected_product(weight->view, x, 20, 32512.0f);
      const auto y = machine.product(*packed, x, 20);
      for (size_t i = 0; i < y.size(); ++i) {
        if (i / 20 == 3) {
          EXPECT_TRUE(std::isnan(y[i]));
        } else {
          EXPECT_EQ(y[i], expected[i]);
        }
      }
    }
  }
}

TEST(CpuLinear, TinyActivationsAreRoundedByTheSameRule) {
  for (CpuIsa isa : supported_isas()) {
    Machine machine(isa, 1);
    const auto weight = block_weight(Format::kQ8_0, 16, 256, 1);
    const auto packed = machine.pack(*weight);
    for (float size : {0x1p-149f, 0x1p-140f, 0x1p-134f, 0x1p-130f, 0x1p-120f}) {
      auto x = random_activations(3, 256, 6);
      for (float& v : x) v *= size;
      expect_same(expected_product(weight->view, x, 3, 32512.0f), machine.product(*packed, x, 3),
                  48,
                  "size " + std::to_string(std::log2(size)) + " " + std::string(cpu_isa_name(isa)));
    }
  }
}

TEST(CpuPack, EmbeddingDecodesExactly) {
  Machine machine(best_cpu_isa(), 2);
  for (const auto& weight : all_weights()) {
    const WeightView& view = weight->view;
    const auto packed = machine.pack(*weight);
    EXPECT_EQ(packed->size_bytes(), machine.backend->packed_bytes(view));
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 20; ++i) ids.push_back(static_cast<int32_t>(i * 13 % view.rows));
    std::vector<float> y(20 * static_cast<size_t>(view.cols));
    const float scale = 25.298221f;
    machine.backend->embedding({tensor::make_view(ids.data(), DType::kI32, {20}), packed.get(),
                                scale, tensor::make_view(y.data(), DType::kF32, {20, view.cols})});
    std::vector<float> row(static_cast<size_t>(view.cols));
    for (size_t i = 0; i < 20; ++i) {
      quant::decode_row(view, ids[i], row);
      for (float& v : row) v = scale * v;
      const auto begin = y.begin() + static_cast<std::ptrdiff_t>(i) * view.cols;
      expect_same(row, std::vector<float>(begin, begin + view.cols), row.size(), weight->name);
    }
  }
}

TEST(CpuPack, TellsWhichRowsAreDoneInOrder) {
  Machine machine(CpuIsa::kGeneric, 3);
  const auto weight = block_weight(Format::kQ8_0, 40000, 256, 1);
  int64_t next = 0;
  int calls = 0;
  auto packed = machine.backend->pack(weight->view, "w", [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, next);
    EXPECT_GT(end, begin);
    next = end;
    ++calls;
  });
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(next, 40000);
  EXPECT_GT(calls, 1);
}

TEST(CpuPack, RefusesScalesAndFloatsThatAreNotFinite) {
  Machine machine(CpuIsa::kGeneric, 2);
  const auto refused = [&](TestWeight& weight, const std::string& row) {
    const auto packed =
        machine.backend->pack(weight.view, "blk.3.ffn_up.weight", [](int64_t, int64_t) {});
    ASSERT_FALSE(packed.ok());
    EXPECT_EQ(packed.error().code, ErrorCode::kBadInput);
    EXPECT_NE(packed.error().message.find("blk.3.ffn_up.weight"), std::string::npos)
        << packed.error().message;
    EXPECT_NE(packed.error().message.find("row " + row + " "), std::string::npos)
        << packed.error().message;
  };
  auto q8 = block_weight(Format::kQ8_0, 40, 64, 1);
  q8->data[(33 * 2 + 1) * 34 + 1] = std::byte{0x7c};
  q8->data[(35 * 2 + 1) * 34 + 1] = std::byte{0x7c};
  refused(*q8, "33");
  auto q4k = block_weight(Format::kQ4_K, 20, 256, 1);
  q4k->data[17 * 144 + 3] = std::byte{0xfe};
  refused(*q4k, "17");
  auto bf16 = block_weight(Format::kBF16, 5, 3, 1);
  bf16->data[2 * (4 * 3 + 2)] = std::byte{0x80};
  bf16->data[2 * (4 * 3 + 2) + 1] = std::byte{0x7f};
  refused(*bf16, "4");
}

TEST(CpuIsaNames, AreParsedBack) {
  for (CpuIsa isa : all_cpu_isas()) {
    EXPECT_EQ(parse_cpu_isa(cpu_isa_name(isa)), isa);
    EXPECT_EQ(cpu_isa_obstacle(isa).empty(), cpu_supports(isa));
  }
  EXPECT_FALSE(parse_cpu_isa("sse9").has_value());
  EXPECT_TRUE(cpu_supports(best_cpu_isa()));
}

}  // namespace
}  // namespace markbase::backends
