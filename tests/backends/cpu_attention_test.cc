// Attention on the CPU: against plain loops in double over the rounded cache, and by bits across
// levels, threads, chunk sizes and companions in the step.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/half.h"
#include "cpu_vector_support.h"

namespace markbase::test {
namespace {

using namespace backends::cpu;
using ops::KvType;

struct Shape {
  KvType type = KvType::kF16;
  int64_t heads = 4;
  int64_t kv_heads = 1;
  int64_t head_dim = 32;
  int64_t window = 0;
  int64_t num_tokens = 100;
  int64_t max_chunk = 128;
  float scale = 0.2F;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << ops::kv_type_name(s.type) << " heads " << s.heads << "/" << s.kv_heads << " dim "
             << s.head_dim << " window " << s.window << " tokens " << s.num_tokens;
}

// A sequence: its q, k, v and its own cache, whose blocks begin as NaN bytes and stand in no order.
struct Sequence {
  Shape shape;
  std::vector<float> q, k, v, y;

  Sequence(const Shape& s, uint64_t seed) : shape(s) {
    Noise noise(seed);
    q = noise.normals(s.num_tokens * s.heads * s.head_dim);
    k = noise.normals(s.num_tokens * s.kv_heads * s.head_dim);
    v = noise.normals(s.num_tokens * s.kv_heads * s.head_dim);
    // Sharp and flat rows, so that the maximum moves from block to block.
    for (int64_t t = 0; t < s.num_tokens; ++t) {
      const float sharpness = t % 3 == 0 ? 4.0F : 0.5F;
      for (int64_t i = 0; i < s.heads * s.head_dim; ++i) {
        q[static_cast<size_t>(t * s.heads * s.head_dim + i)] *= sharpness;
      }
    }
    y.assign(q.size(), 0.0F);
  }
  // A full layer holds every block; a sliding one a ring that just covers window and chunk.
  int64_t table_blocks() const {
    const int64_t all = (shape.num_tokens + 63) / 64;
    const int64_t ring = (shape.window + shape.max_chunk + 62) / 64 + 1;
    return shape.window > 0 ? std::min(all, ring) : all;
  }
};

// Sequences of one shape in one pool of blocks.
class Runner {
 public:
  Runner(CpuIsa isa, int num_threads, std::vector<Sequence*> sequences)
      : kernels_(vector_kernels(isa)), pool_(num_threads), sequences_(std::move(sequences)) {
    const Shape& s = shape();
    layout_ = {s.type, s.kv_heads, s.head_dim};
    for (const Sequence* q : sequences_) {
      table_blocks_ = std::max(table_blocks_, q->table_blocks());
    }
    const int64_t num_blocks = table_blocks_ * static_cast<int64_t>(sequences_.size());
    for (int64_t i = 0; i < num_blocks; ++i) {
      table_.push_back(static_cast<int32_t>((i * 7 + 3) % num_blocks));
    }
    if (num_blocks % 7 == 0) {
      for (int64_t i = 0; i < num_blocks; ++i) {
        table_[static_cast<size_t>(i)] = static_cast<int32_t>(num_blocks - 1 - i);
      }
    }
    blocks_.assign(static_cast<size_t>(num_blocks) * kv_block_bytes(layout_), 0xff);
    ops::StepCapacity capacity;
    capacity.max_rows = s.max_chunk * static_cast<int64_t>(sequences_.size());
    capacity.max_heads = s.heads;
    capacity.max_head_dim = s.head_dim;
    capacity.max_context = s.num_tokens;
    scratch_.resize(vector_scratch_bytes(capacity, num_threads) / 64 + 1);
  }

  // One step: `counts[i]` tokens of sequence i from `firsts[i]`; writes their K and V, then
  // attends.
  void step(const std::vector<int64_t>& firsts, const std::vector<int64_t>& counts) {
    std::vector<float> q, k, v;
    std::vector<int32_t> positions, owners;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      append(sequences_[i]->q, firsts[i], counts[i], q_width(), &q);
      append(sequences_[i]->k, firsts[i], counts[i], kv_width(), &k);
      append(sequences_[i]->v, firsts[i], counts[i], kv_width(), &v);
      for (int64_t t = 0; t < counts[i]; ++t) {
        positions.push_back(static_cast<int32_t>(firsts[i] + t));
        owners.push_back(static_cast<int32_t>(i));
      }
    }
    std::vector<float> y(q.size());
    run(&q, &k, &v, &positions, &owners, &y);
    size_t at = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const auto n = static_cast<size_t>(counts[i] * q_width());
      std::copy_n(&y[at], n, &sequences_[i]->y[static_cast<size_t>(firsts[i] * q_width())]);
      at += n;
    }
  }

  void run_chunks(int64_t chunk) {
    for (int64_t t = 0; t < shape().num_tokens; t += chunk) {
      step({t}, {std::min(chunk, shape().num_tokens - t)});
    }
  }

 private:
  const Shape& shape() const { return sequences_[0]->shape; }
  int64_t q_width() const { return shape().heads * shape().head_dim; }
  int64_t kv_width() const { return shape().kv_heads * shape().head_dim; }

  static void append(const std::vector<float>& from, int64_t first, int64_t count, int64_t width,
                     std::vector<float>* to) {
    to->insert(to->end(), from.begin() + first * width, from.begin() + (first + count) * width);
  }

  void run(std::vector<float>* q, std::vector<float>* k, std::vector<float>* v,
           std::vector<int32_t>* positions, std::vector<int32_t>* owners, std::vector<float>* y) {
    const auto n = static_cast<int64_t>(positions->size());
    const Shape& s = shape();
    std::vector<int32_t> overflow = {0};
    const ops::KvView cache = {
        layout_, blocks_.data(),
        view(table_, {static_cast<int64_t>(sequences_.size()), table_blocks_})};
    ops::KvWriteArgs write;
    write.k = view(*k, {n, s.kv_heads, s.head_dim});
    write.v = view(*v, {n, s.kv_heads, s.head_dim});
    write.positions = view(*positions, {n});
    write.sequences = view(*owners, {n});
    write.cache = cache;
    write.overflow = view(overflow, {1});
    kv_write(kernels_, pool_, write);
    EXPECT_EQ(overflow[0], 0);
    ops::AttentionArgs args;
    args.q = view(*q, {n, s.heads, s.head_dim});
    args.positions = write.positions;
    args.sequences = write.sequences;
    args.cache = cache;
    args.scale = s.scale;
    args.window = s.window;
    args.y = view(*y, {n, s.heads, s.head_dim});
    attention(kernels_, pool_, std::as_writable_bytes(std::span(scratch_)), args);
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const VectorKernels& kernels_;
  base::ThreadPool pool_;
  std::vector<Sequence*> sequences_;
  ops::KvLayout layout_;
  int64_t table_blocks_ = 0;
  std::vector<int32_t> table_;
  std::vector<uint8_t> blocks_;
  std::vector<Line> scratch_;
};

// --- the reference ---

// What the cache makes of a head's vector.
std::vector<double> rounded(KvType type, const float* x, int64_t n) {
  float highest = 0.0F;
  for (int64_t i = 0; i < n; ++i) highest = std::max(highest, std::fabs(x[i]));
  const float scale = highest / 127.0F;
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    switch (type) {
      case KvType::kF16:
        out.push_back(base::fp16_to_float(base::float_to_fp16(x[i])));
        break;
      case KvType::kBF16:
        out.push_back(base::bf16_to_float(base::float_to_bf16(x[i])));
        break;
      case KvType::kF32:
        out.push_back(x[i]);
        break;
      case KvType::kQ8:
        out.push_back(double{scale} * std::nearbyint(x[i] / scale));
        break;
    }
  }
  return out;
}

// y of one row and head in double, and for each element how far float32 may be from it.
struct Expected {
  std::vector<double> y;
  std::vector<double> bound;
};
Expected reference(const Sequence& s, int64_t t, int64_t h) {
  const Shape& c = s.shape;
  const int64_t g = h / (c.heads / c.kv_heads);
  const float* q = &s.q[static_cast<size_t>((t * c.heads + h) * c.head_dim)];
  const int64_t first = c.window > 0 ? std::max<int64_t>(0, t - c.window + 1) : 0;
  std::vector<double> scores;
  double highest = -1e300;
  double score_error = 0.0;
  for (int64_t j = first; j <= t; ++j) {
    const auto k =
        rounded(c.type, &s.k[static_cast<size_t>((j * c.kv_heads + g) * c.head_dim)], c.head_dim);
    double dot = 0.0;
    double magnitude = 0.0;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      dot += q[d] * k[static_cast<size_t>(d)];
      magnitude += std::fabs(q[d] * k[static_cast<size_t>(d)]);
    }
    scores.push_back(double{c.scale} * dot);
    highest = std::max(highest, scores.back());
    // A chain of head_dim fmas, the scales, and the subtraction of the maximum.
    score_error = std::max(score_error,
                           kEpsilon * c.scale * magnitude * (static_cast<double>(c.head_dim) + 4));
  }
  const auto n = static_cast<size_t>(c.head_dim);
  Expected e{std::vector<double>(n), std::vector<double>(n)};
  double sum = 0.0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (int64_t j = first; j <= t; ++j) {
    const double p = scores[static_cast<size_t>(j - first)] / sum;
    const auto v =
        rounded(c.type, &s.v[static_cast<size_t>((j * c.kv_heads + g) * c.head_dim)], c.head_dim);
    for (size_t d = 0; d < n; ++d) {
      e.y[d] += p * v[d];
      e.bound[d] += p * std::fabs(v[d]);
    }
  }
  // Numerator and denominator each carry twice the scores' error and the roundings of their chain.
  const double chain = kEpsilon * (static_cast<double>(t - first + 1) + 10.0);
  for (double& b : e.bound) b = b * (4.0 * score_error + 2.0 * chain) + 1e-30;
  return e;
}

void expect_near_reference(const Sequence& s, int64_t every) {
  const Shape& c = s.shape;
  for (int64_t t = 0; t < c.num_tokens; t += t + every < c.num_tokens ? every : 1) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const Expected e = reference(s, t, h);
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const auto i = static_cast<size_t>(d);
        ASSERT_NEAR(s.y[static_cast<size_t>((t * c.heads + h) * c.head_dim + d)], e.y[i],
                    e.bound[i])
            << "row " << t << " head " << h << " dim " << d;
      }
    }
  }
}

// --- tests ---

constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8};

TEST(CpuAttention, IsNearPlainLoopsForEveryType) {
  for (const KvType type : kTypes) {
    for (const CpuIsa isa : levels_here()) {
      Shape shape;
      shape.type = type;
      Sequence s(shape, 1);
      SCOPED_TRACE(::testing::Message() << backends::cpu_isa_name(isa) << " " << shape);
      Runner(isa, 2, {&s}).run_chunks(64);
      expect_near_reference(s, 7);
    }
  }
}

// Every count of queries that can share a tile, and heads that do not fit one.
TEST(CpuAttention, IsNearPlainLoopsForEveryGrouping) {
  const struct {
    int64_t heads, kv_heads, head_dim;
  } groupings[] = {{1, 1, 16}, {2, 2, 48}, {3, 1, 64},  {5, 1, 32},  {6, 2, 32},
                   {7, 1, 16}, {8, 1, 80}, {16, 2, 32}, {50, 1, 16}, {8, 1, 512}};
  for (const auto& grouping : groupings) {
    for (const CpuIsa isa : levels_here()) {
      Shape shape;
      shape.heads = grouping.heads;
      shape.kv_heads = grouping.kv_heads;
      shape.head_dim = grouping.head_dim;
      shape.num_tokens = 70;
      Sequence s(shape, 2);
      SCOPED_TRACE(::testing::Message() << backends::cpu_isa_name(isa) << " " << shape);
      Runner(isa, 3, {&s}).run_chunks(33);
      expect_near_reference(s, 23);
    }
  }
}

// Windows that end inside, at and beside the borders of blocks (64) and spans (512), over rings
// that wrap.
TEST(CpuAttention, IsNearPlainLoopsForEveryWindow) {
  for (const int64_t window : {0, 1, 2, 63, 64, 65, 100, 512, 513, 600}) {
    Shape shape;
    shape.heads = 2;
    shape.window = window;
    shape.num_tokens = 1160;
    shape.max_chunk = 32;
    Sequence s(shape, 3);
    SCOPED_TRACE(::testing::Message() << shape);
    Runner(backends::best_cpu_isa(), 2, {&s}).run_chunks(29);
    expect_near_reference(s, 61);
  }
}

// The ways to run a sequence: decode, in single spans and in whole tiles; generic, whose fused
// product is a call, less.
struct Way {
  int threads;
  int64_t chunk;
};
std::vector<Way> ways(CpuIsa isa, KvType type) {
  if (isa != CpuIsa::kGeneric) return {{1, 1}, {1, 7}, {2, 1}, {2, 64}, {3, 300}, {7, 7}, {7, 512}};
  if (type == KvType::kF16) return {{2, 1}, {2, 300}};
  return {{2, 300}};
}

// One answer for all levels, thread counts and chunk sizes.
TEST(CpuAttention, BitsDependOnNothingButTheRow) {
  for (const int64_t window : {0, 200}) {
    for (const KvType type : kTypes) {
      Shape shape;
      shape.type = type;
      shape.kv_heads = 2;
      shape.head_dim = 64;
      shape.window = window;
      shape.num_tokens = 1060;
      shape.max_chunk = 512;
      Sequence expected(shape, 4);
      Runner(backends::best_cpu_isa(), 1, {&expected}).run_chunks(512);
      expect_near_reference(expected, 307);
      for (const CpuIsa isa : levels_here()) {
        for (const Way& way : ways(isa, type)) {
          Sequence s(shape, 4);
          SCOPED_TRACE(::testing::Message()
                       << backends::cpu_isa_name(isa) << " threads " << way.threads << " chunk "
                       << way.chunk << " " << shape);
          Runner(isa, way.threads, {&s}).run_chunks(way.chunk);
          ASSERT_TRUE(same_bits(s.y, expected.y));
        }
      }
    }
  }
}

TEST(CpuAttention, ARowDoesNotDependOnItsCompanions) {
  Shape shape;
  shape.num_tokens = 640;
  shape.head_dim = 64;
  shape.max_chunk = 640;
  for (const CpuIsa isa : levels_here()) {
    Sequence alone[3] = {{shape, 5}, {shape, 6}, {shape, 7}};
    for (Sequence& s : alone) Runner(isa, 1, {&s}).run_chunks(640);
    Sequence together[3] = {{shape, 5}, {shape, 6}, {shape, 7}};
    Runner runner(isa, 2, {&together[0], &together[1], &together[2]});
    runner.step({0, 0, 0}, {560, 1, 333});
    runner.step({560, 1, 333}, {1, 630, 2});
    runner.step({561, 631, 335}, {0, 1, 1});
    runner.step({561, 632, 336}, {79, 8, 304});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(together[i].y, alone[i].y)) << i;
  }
}

}  // namespace
}  // namespace markbase::test
