// The CPU's norms, elementwise ops, rope and cache writes: against plain loops in double within
// derived bounds, and level against level, thread count against thread count, by bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "backends/cpu/attention_layout.h"
#include "backends/cpu/kernels/vector_kernels.h"
#include "base/half.h"
#include "cpu_vector_support.h"

namespace markbase::test {
namespace {

using namespace backends::cpu;

constexpr int64_t kWidths[] = {1, 7, 15, 16, 17, 63, 64, 65, 100, 640, 1152, 21504};

// Runs `op` with every level, 1, 2, 3 and 7 threads, all rows at once and row by row, and expects
// the bits that the generic level gives on one thread. op(kernels, pool, first_row, num_rows, out).
using RowOp = std::function<void(const VectorKernels&, base::ThreadPool&, int64_t, int64_t,
                                 std::vector<float>&)>;
std::vector<float> run_everywhere(int64_t num_rows, const std::vector<float>& initial,
                                  const RowOp& op) {
  base::ThreadPool one(1);
  std::vector<float> expected = initial;
  op(generic(), one, 0, num_rows, expected);
  for (const CpuIsa isa : levels_here()) {
    for (const int threads : {1, 2, 3, 7}) {
      SCOPED_TRACE(std::string(backends::cpu_isa_name(isa)) + " threads " +
                   std::to_string(threads));
      base::ThreadPool pool(threads);
      std::vector<float> whole = initial;
      op(vector_kernels(isa), pool, 0, num_rows, whole);
      EXPECT_TRUE(same_bits(whole, expected));
      std::vector<float> single = initial;
      for (int64_t i = 0; i < num_rows; ++i) op(vector_kernels(isa), pool, i, 1, single);
      EXPECT_TRUE(same_bits(single, expected));
    }
  }
  return expected;
}

// Enough rows that a call is shared out.
int64_t rows_for(int64_t width) {
  return width < 1000 ? 5 + 60'000 / width / 8 : 70'000 / width + 3;
}

// y = x / rms * w: the sum's relative error is at most (chain length + tree) half units of a sum of
// positive terms, halved by the root; then root, quotient, division by n, eps and two products.
double norm_bound(int64_t width, double exact) {
  return kEpsilon * ((static_cast<double>(width) / 64.0 + 8.0) / 2.0 + 5.0) * std::fabs(exact);
}

std::vector<double> norm_reference(const float* x, const float* weight, double eps, int64_t width) {
  double squares = 0.0;
  for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
  std::vector<double> y(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) {
    y[static_cast<size_t>(i)] = x[i] * inverse * (weight == nullptr ? 1.0 : weight[i]);
  }
  return y;
}

TEST(CpuVectorOps, RmsNorm) {
  for (const int64_t width : kWidths) {
    for (const bool weighted : {true, false}) {
      SCOPED_TRACE(width);
      const int64_t rows = std::min<int64_t>(rows_for(width), 64);
      Noise noise(static_cast<uint64_t>(width));
      std::vector<float> x = noise.normals(rows * width, 3.0F);
      std::vector<float> weight = noise.normals(width);
      const std::vector<float> y =
          run_everywhere(rows, std::vector<float>(x.size()),
                         [&](const VectorKernels& kernels, base::ThreadPool& pool, int64_t first,
                             int64_t n, std::vector<float>& out) {
                           ops::RmsNormArgs args;
                           args.x = view(x, {rows, width}).slice(first, n);
                           if (weighted) args.weight = view(weight, {width});
                           args.y = view(out, {rows, width}).slice(first, n);
                           rms_norm(kernels, pool, args);
                         });
      for (int64_t i = 0; i < rows; ++i) {
        const std::vector<double> exact = norm_reference(
            &x[static_cast<size_t>(i * width)], weighted ? weight.data() : nullptr, 1e-6F, width);
        for (int64_t j = 0; j < width; ++j) {
          const double e = exact[static_cast<size_t>(j)];
          ASSERT_NEAR(y[static_cast<size_t>(i * width + j)], e, norm_bound(width, e) + 1e-44);
        }
      }
    }
  }
}

TEST(CpuVectorOps, RmsNormInPlaceAndOverStridedRows) {
  Noise noise(5);
  const std::vector<float> x = noise.normals(4 * 100);
  base::ThreadPool pool(1);
  for (const CpuIsa isa : levels_here()) {
    std::vector<float> in_place = x;
    ops::RmsNormArgs args;
    args.x = view(in_place, {4, 100});
    args.x.shape[1] = 70;  // rows of 70 in a matrix of 100
    args.y = args.x;
    rms_norm(vector_kernels(isa), pool, args);
    for (int64_t i = 0; i < 4; ++i) {
      const std::vector<double> exact =
          norm_reference(&x[static_cast<size_t>(i * 100)], nullptr, 1e-6F, 70);
      for (int64_t j = 0; j < 100; ++j) {
        const double e =
            j < 70 ? exact[static_cast<size_t>(j)] : x[static_cast<size_t>(i * 100 + j)];
        ASSERT_NEAR(in_place[static_cast<size_t>(i * 100 + j)], e, norm_bound(70, e));
      }
    }
  }
}

TEST(CpuVectorOps, AddRmsNormGivesTheBitsOfItsParts) {
  base::ThreadPool pool(3);
  for (const int64_t width : kWidths) {
    for (const bool has_y : {true, false}) {
      SCOPED_TRACE(width);
      const int64_t rows = std::min<int64_t>(rows_for(width), 64);
      Noise noise(static_cast<uint64_t>(width) + 1);
      std::vector<float> x = noise.normals(rows * width);
      std::vector<float> residual = noise.normals(rows * width, 30.0F);
      std::vector<float> post = noise.normals(width);
      std::vector<float> next = noise.normals(width);
      for (const CpuIsa isa : levels_here()) {
        const VectorKernels& kernels = vector_kernels(isa);
        std::vector<float> normed(x.size());
        std::vector<float> sum = residual;
        std::vector<float> y(x.size());
        const TensorView x_view = view(x, {rows, width});
        const TensorView sum_view = view(sum, {rows, width});
        rms_norm(kernels, pool, {x_view, view(post, {width}), 1e-6F, view(normed, {rows, width})});
        add(kernels, pool, {view(normed, {rows, width}), sum_view});
        rms_norm(kernels, pool, {sum_view, view(next, {width}), 1e-6F, view(y, {rows, width})});

        std::vector<float> fused_x = x;
        std::vector<float> fused_residual = residual;
        ops::AddRmsNormArgs args;
        args.x = view(fused_x, {rows, width});
        args.post_weight = view(post, {width});
        args.residual = view(fused_residual, {rows, width});
        if (has_y) args.next_weight = view(next, {width});
        if (has_y) args.y = args.x;
        add_rms_norm(kernels, pool, args);
        EXPECT_TRUE(same_bits(fused_residual, sum));
        if (has_y) {
          EXPECT_TRUE(same_bits(fused_x, y));
        }
      }
    }
  }
}

// Runs an op that changes out in place with one more input, for every width.
void check_elementwise(
    const std::function<void(const VectorKernels&, base::ThreadPool&, TensorView, TensorView)>& op,
    const std::function<void(float, float, float)>& check_one) {
  for (const int64_t width : {int64_t{1}, int64_t{17}, int64_t{640}, int64_t{40'001}}) {
    SCOPED_TRACE(width);
    const int64_t rows = std::min<int64_t>(rows_for(width), 64);
    Noise noise(static_cast<uint64_t>(width) + 2);
    std::vector<float> x = noise.normals(rows * width, 4.0F);
    const std::vector<float> y = noise.normals(rows * width, 4.0F);
    const std::vector<float> out =
        run_everywhere(rows, y,
                       [&](const VectorKernels& kernels, base::ThreadPool& pool, int64_t first,
                           int64_t n, std::vector<float>& target) {
                         op(kernels, pool, view(x, {rows, width}).slice(first, n),
                            view(target, {rows, width}).slice(first, n));
                       });
    for (size_t i = 0; i < x.size(); ++i) check_one(x[i], y[i], out[i]);
  }
}

TEST(CpuVectorOps, Add) {
  check_elementwise(
      [](const VectorKernels& kernels, base::ThreadPool& pool, TensorView x, TensorView y) {
        add(kernels, pool, {x, y});
      },
      [](float x, float y, float out) { ASSERT_EQ(out, x + y); });
}

TEST(CpuVectorOps, Scale) {
  check_elementwise(
      [](const VectorKernels& kernels, base::ThreadPool& pool, TensorView, TensorView y) {
        scale(kernels, pool, {y, 0.3F});
      },
      [](float, float y, float out) { ASSERT_EQ(out, y * 0.3F); });
}

TEST(CpuVectorOps, SoftCap) {
  check_elementwise(
      [](const VectorKernels& kernels, base::ThreadPool& pool, TensorView, TensorView y) {
        soft_cap(kernels, pool, {y, 3.0F});
      },
      [](float, float y, float out) {
        const double exact = 3.0 * std::tanh(static_cast<double>(y) / 3.0);
        ASSERT_NEAR(out, exact, std::fabs(exact) * (2e-7 + 3 * kEpsilon));
      });
}

TEST(CpuVectorOps, GeluMul) {
  check_elementwise(
      [](const VectorKernels& kernels, base::ThreadPool& pool, TensorView x, TensorView y) {
        gelu_mul(kernels, pool, {y, x, y});
      },
      [](float x, float y, float out) {
        const double z = y;
        const double u = std::sqrt(2.0 / 3.14159265358979323846) * (z + 0.044715 * z * z * z);
        const double exact = z / (1.0 + std::exp(-2.0 * u)) * x;
        const double tail = std::max(0.0, -2.0 * u);
        ASSERT_NEAR(out, exact, std::fabs(exact) * kEpsilon * (7.0 + 5.0 * tail) + 1e-35);
      });
}

TEST(CpuVectorOps, GatherRows) {
  Noise noise(3);
  std::vector<float> x = noise.normals(300 * 513);
  std::vector<int32_t> rows = {299, 0, 7, 7, 150};
  for (int i = 0; i < 200; ++i) rows.push_back(i);
  const int64_t n = static_cast<int64_t>(rows.size());
  for (const int threads : {1, 3}) {
    base::ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(n * 513));
    gather_rows(generic(), pool, {view(x, {300, 513}), view(rows, {n}), view(y, {n, 513})});
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      ASSERT_TRUE(std::equal(&y[i * 513], &y[i * 513] + 513, &x[row * 513]));
    }
  }
}

// --- rope ---

// A table of any two numbers: the op may use nothing else.
TEST(CpuVectorOps, RopeRotatesByTheTable) {
  for (const int64_t head_dim : {int64_t{2}, int64_t{32}, int64_t{48}, int64_t{256}}) {
    SCOPED_TRACE(head_dim);
    const int64_t heads = 3;
    const int64_t rows = 60'000 / (heads * head_dim) + 2;
    const int64_t half = head_dim / 2;
    Noise noise(static_cast<uint64_t>(head_dim));
    const std::vector<float> x = noise.normals(rows * heads * head_dim);
    std::vector<float> table = noise.normals(50 * head_dim);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(t * 7 % 50));
    const std::vector<float> y = run_everywhere(
        rows, x,
        [&](const VectorKernels& kernels, base::ThreadPool& pool, int64_t first, int64_t n,
            std::vector<float>& out) {
          rope(kernels, pool,
               {view(out, {rows, heads, head_dim}).slice(first, n),
                view(positions, {rows}).slice(first, n), view(table, {50, head_dim})});
        });
    for (int64_t t = 0; t < rows; ++t) {
      const float* cosine =
          &table[static_cast<size_t>(positions[static_cast<size_t>(t)] * head_dim)];
      for (int64_t h = 0; h < heads; ++h) {
        const float* a = &x[static_cast<size_t>((t * heads + h) * head_dim)];
        const float* b = &y[static_cast<size_t>((t * heads + h) * head_dim)];
        for (int64_t k = 0; k < half; ++k) {
          const double c = cosine[k];
          const double s = cosine[half + k];
          const double bound = 2 * kEpsilon * (std::fabs(a[k]) + std::fabs(a[half + k])) *
                               (std::fabs(c) + std::fabs(s));
          ASSERT_NEAR(b[k], a[k] * c - a[half + k] * s, bound);
          ASSERT_NEAR(b[half + k], a[half + k] * c + a[k] * s, bound);
        }
      }
    }
  }
}

TEST(CpuVectorOps, NormRopeGivesTheBitsOfItsParts) {
  const int64_t heads = 4;
  const int64_t head_dim = 256;
  const int64_t rows = 70;
  Noise noise(11);
  const std::vector<float> x = noise.normals(rows * heads * head_dim);
  std::vector<float> weight = noise.normals(head_dim);
  std::vector<float> table = noise.normals(rows * head_dim);
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(rows - 1 - t));
  base::ThreadPool pool(2);
  for (const CpuIsa isa : levels_here()) {
    const VectorKernels& kernels = vector_kernels(isa);
    std::vector<float> parts = x;
    const TensorView flat = view(parts, {rows * heads, head_dim});
    rms_norm(kernels, pool, {flat, view(weight, {head_dim}), 1e-6F, flat});
    rope(kernels, pool,
         {view(parts, {rows, heads, head_dim}), view(positions, {rows}),
          view(table, {rows, head_dim})});
    std::vector<float> fused = x;
    norm_rope(kernels, pool,
              {view(fused, {rows, heads, head_dim}), view(weight, {head_dim}), 1e-6F,
               view(positions, {rows}), view(table, {rows, head_dim})});
    EXPECT_TRUE(same_bits(fused, parts));
  }
}

// --- the cache ---

struct Cache {
  ops::KvLayout layout;
  std::vector<uint8_t> bytes;
  std::vector<int32_t> table;
  std::vector<int32_t> overflow = {0};

  Cache(ops::KvType type, int64_t heads, int64_t head_dim, std::vector<int32_t> block_table)
      : layout{type, heads, head_dim},
        bytes(block_table.size() * kv_block_bytes(layout)),
        table(std::move(block_table)) {}
  void write(const VectorKernels& kernels, base::ThreadPool& pool, std::vector<float>& k,
             std::vector<float>& v, std::vector<int32_t> positions) {
    const auto n = static_cast<int64_t>(positions.size());
    std::vector<int32_t> sequences(positions.size(), 0);
    ops::KvWriteArgs args;
    args.k = view(k, {n, layout.num_kv_heads, layout.head_dim});
    args.v = view(v, {n, layout.num_kv_heads, layout.head_dim});
    args.positions = view(positions, {n});
    args.sequences = view(sequences, {n});
    args.cache = {layout, bytes.data(), view(table, {1, static_cast<int64_t>(table.size())})};
    args.overflow = view(overflow, {1});
    kv_write(kernels, pool, args);
  }
  // The stored value of the key (or value) at `entry` of block 0, read by the layout's description.
  template <class T>
  T at(bool value, int64_t head, int64_t entry, int64_t dim) const {
    const KvHeadLayout head_layout = kv_head_layout(layout);
    const auto* base = reinterpret_cast<const T*>(
        bytes.data() + static_cast<size_t>(head) * head_layout.head_bytes +
        (value ? head_layout.offsets.v : 0));
    return value ? base[(dim / 16 * 64 + entry) * 16 + dim % 16]
                 : base[(entry / 16 * layout.head_dim + dim) * 16 + entry % 16];
  }
};

std::vector<int32_t> positions_from(int32_t first, int64_t n) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < n; ++i) positions.push_back(first + static_cast<int32_t>(i));
  return positions;
}

TEST(CpuVectorOps, KvWriteRoundsToTheType) {
  const int64_t heads = 2;
  const int64_t head_dim = 48;
  const int64_t n = 64;
  base::ThreadPool pool(1);
  Noise noise(21);
  std::vector<float> k = noise.normals(n * heads * head_dim);
  std::vector<float> v = noise.normals(n * heads * head_dim, 1e-6F);  // half subnormals
  for (const CpuIsa isa : levels_here()) {
    const auto written = [&](ops::KvType type) {
      Cache cache(type, heads, head_dim, {0});
      cache.write(vector_kernels(isa), pool, k, v, positions_from(0, n));
      EXPECT_EQ(cache.overflow[0], 0);
      return cache;
    };
    const Cache f16 = written(ops::KvType::kF16);
    const Cache bf16 = written(ops::KvType::kBF16);
    const Cache f32 = written(ops::KvType::kF32);
    for (const bool value : {false, true}) {
      for (int64_t i = 0; i < n * heads * head_dim; ++i) {
        const float x = (value ? v : k)[static_cast<size_t>(i)];
        const int64_t entry = i / (heads * head_dim);
        const int64_t head = i / head_dim % heads;
        const int64_t dim = i % head_dim;
        ASSERT_EQ(f16.at<uint16_t>(value, head, entry, dim), base::float_to_fp16(x)) << x;
        ASSERT_EQ(bf16.at<uint16_t>(value, head, entry, dim), base::float_to_bf16(x)) << x;
        ASSERT_EQ(f32.at<float>(value, head, entry, dim), x);
      }
    }
  }
}

TEST(CpuVectorOps, KvWriteQuantisesEachTokenAndHead) {
  const int64_t head_dim = 64;
  base::ThreadPool pool(1);
  Noise noise(22);
  std::vector<float> k = noise.normals(10 * head_dim);
  std::vector<float> v = noise.normals(10 * head_dim, 100.0F);
  std::fill_n(v.begin(), head_dim, 0.0F);  // token 0: no scale
  for (const CpuIsa isa : levels_here()) {
    Cache cache(ops::KvType::kQ8, 1, head_dim, {0});
    cache.write(vector_kernels(isa), pool, k, v, positions_from(0, 10));
    const KvHeadOffsets offsets = kv_head_layout(cache.layout).offsets;
    for (const bool value : {false, true}) {
      const auto* scales = reinterpret_cast<const float*>(
          cache.bytes.data() + (value ? offsets.v_scales : offsets.k_scales));
      for (int64_t t = 0; t < 10; ++t) {
        const float* x = &(value ? v : k)[static_cast<size_t>(t * head_dim)];
        float highest = 0.0F;
        for (int64_t d = 0; d < head_dim; ++d) highest = std::max(highest, std::fabs(x[d]));
        ASSERT_EQ(scales[t], highest / 127.0F);
        for (int64_t d = 0; d < head_dim; ++d) {
          const double stored = double{scales[t]} * cache.at<int8_t>(value, 0, t, d);
          ASSERT_NEAR(stored, x[d], 0.5001 * scales[t]);
        }
      }
    }
  }
}

TEST(CpuVectorOps, KvWriteGivesTheSameBytesEverywhere) {
  const int64_t n = 200;
  const int64_t width = 3 * 64;
  Noise noise(23);
  std::vector<float> k = noise.normals(n * width);
  std::vector<float> v = noise.normals(n * width);
  for (const auto type :
       {ops::KvType::kF16, ops::KvType::kBF16, ops::KvType::kF32, ops::KvType::kQ8}) {
    base::ThreadPool one(1);
    Cache expected(type, 3, 64, {2, 0, 3, 1});
    expected.write(generic(), one, k, v, positions_from(70, n));  // wraps: position 256 is block 4
    for (const CpuIsa isa : levels_here()) {
      for (const int threads : {1, 2, 7}) {
        base::ThreadPool pool(threads);
        Cache cache(type, 3, 64, {2, 0, 3, 1});
        cache.write(vector_kernels(isa), pool, k, v, positions_from(70, n));
        EXPECT_EQ(cache.bytes, expected.bytes) << backends::cpu_isa_name(isa);
      }
    }
  }
}

TEST(CpuVectorOps, KvWriteReportsWhatDoesNotFit) {
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    ops::KvType type;
    float value;
    bool fits;
  };
  const Case cases[] = {
      {ops::KvType::kF16, 65504.0F, true},   {ops::KvType::kF16, 65519.0F, true},
      {ops::KvType::kF16, -65520.0F, false}, {ops::KvType::kF16, inf, false},
      {ops::KvType::kF16, NAN, false},       {ops::KvType::kBF16, 3.38e38F, true},
      {ops::KvType::kBF16, 3.4e38F, false},  {ops::KvType::kBF16, -inf, false},
      {ops::KvType::kF32, 3.4e38F, true},    {ops::KvType::kF32, inf, false},
      {ops::KvType::kF32, NAN, false},       {ops::KvType::kQ8, 3.4e38F, true},
      {ops::KvType::kQ8, -inf, false},       {ops::KvType::kQ8, NAN, false},
  };
  base::ThreadPool pool(1);
  for (const Case& c : cases) {
    for (const CpuIsa isa : levels_here()) {
      for (const bool value : {false, true}) {
        Noise noise(24);
        std::vector<float> k = noise.normals(3 * 32);
        std::vector<float> v = noise.normals(3 * 32);
        (value ? v : k)[50] = c.value;
        Cache cache(c.type, 1, 32, {0});
        cache.write(vector_kernels(isa), pool, k, v, positions_from(5, 3));
        EXPECT_EQ(cache.overflow[0], c.fits ? 0 : 1) << c.value;
      }
    }
  }
}

// --- sampling ---

TEST(CpuVectorOps, SampleTakesEachRowWithItsOwnParameters) {
  const int64_t rows = 5;
  const int64_t vocab = 1000;
  Noise noise(31);
  const std::vector<float> logits = noise.normals(rows * vocab, 5.0F);
  std::vector<ops::SamplingParams> params(rows);
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].temperature = i % 2 == 0 ? 0.0F : 1.0F;
    params[i].seed = i;
  }
  std::vector<int32_t> positions = positions_from(10, rows);
  std::vector<int32_t> suppressed = {0, 999};
  std::vector<ops::Candidate> scratch(static_cast<size_t>(rows * vocab));
  for (const int threads : {1, 3}) {
    base::ThreadPool pool(threads);
    std::vector<float> x = logits;
    std::vector<uint32_t> seen(static_cast<size_t>(rows) * 32, 0);
    std::vector<int32_t> ids(static_cast<size_t>(rows), -1);
    ops::SampleArgs args;
    args.logits = view(x, {rows, vocab});
    args.params = params.data();
    args.positions = view(positions, {rows});
    args.seen = make_view(seen.data(), DType::kU32, {rows, 32});
    args.suppressed = view(suppressed, {2});
    args.ids = view(ids, {rows});
    args.scratch = scratch.data();
    sample(generic(), pool, args);
    for (int64_t i = 0; i < rows; ++i) {
      const auto r = static_cast<size_t>(i);
      const float* row = &logits[static_cast<size_t>(i * vocab)];
      if (params[r].temperature == 0.0F) {
        EXPECT_EQ(ids[r], std::max_element(row + 1, row + 999) - row);
      } else {
        std::vector<float> alone(row, row + vocab);
        std::vector<uint32_t> alone_seen(32, 0);
        EXPECT_EQ(ids[r], ops::sample_row(alone, params[r], positions[r], suppressed, alone_seen,
                                          {scratch.data(), static_cast<size_t>(vocab)}));
      }
      const auto id = static_cast<size_t>(ids[r]);
      EXPECT_EQ(seen[r * 32 + id / 32], 1u << (id % 32));
    }
  }
}

}  // namespace
}  // namespace markbase::test
