#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

// Lengths of the two sequences, and how many of their last positions are queries.
constexpr int64_t kLengths[] = {203, 70};
constexpr int64_t kQueries[] = {7, 4};
constexpr int64_t kKeys = kLengths[0] + kLengths[1];
// Keys enter the cache in chunks that do not divide a block.
constexpr int64_t kChunk = 48;

struct Shape {
  ops::KvType type;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class AttentionCase final : public OpCase {
 public:
  explicit AttentionCase(const Shape& shape) : shape_(shape) {
    k_ = random_floats(101, kKeys * kv_width(), 1.0F, 80);
    v_ = random_floats(102, kKeys * kv_width(), 1.0F, 80);
    q_ = random_floats(103, num_rows() * q_width(), 1.0F, 80);
    for (int32_t s = 0; s < 2; ++s) {
      for (int64_t i = 0; i < kQueries[s]; ++i) {
        positions_.push_back(static_cast<int32_t>(kLengths[s] - kQueries[s] + i));
        sequences_.push_back(s);
      }
    }
    // A ring just long enough for the window and a chunk, or the whole length.
    const int64_t longest = ceil_div(kLengths[0], ops::kKvBlockTokens);
    const int64_t ring = ceil_div(shape.window + kChunk, ops::kKvBlockTokens) + 1;
    table_blocks_ = shape.window == 0 ? longest : std::min(longest, ring);
    // Blocks of the two sequences alternate, backwards.
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t b = 0; b < table_blocks_; ++b) {
        table_.push_back(static_cast<int32_t>(2 * (table_blocks_ - 1 - b) + s));
      }
    }
  }
  std::string name() const override {
    return fmt::format("attention {} heads {}/{} head_dim {} window {}",
                       ops::kv_type_name(shape_.type), shape_.heads, shape_.kv_heads,
                       shape_.head_dim, shape_.window);
  }
  int64_t num_rows() const override { return kQueries[0] + kQueries[1]; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<double> bound(std::span<const float>) const override;

 private:
  int64_t kv_width() const { return shape_.kv_heads * shape_.head_dim; }
  int64_t q_width() const { return shape_.heads * shape_.head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }
  void write_keys(ops::Backend& backend, const ops::KvView& cache, int32_t sequence) const;
  void add_head_bounds(int64_t row, int64_t head, std::vector<double>& bounds) const;

  Shape shape_;
  int64_t table_blocks_ = 0;
  std::vector<float> q_, k_, v_;
  std::vector<int32_t> positions_, sequences_, table_;
};

void AttentionCase::write_keys(ops::Backend& backend, const ops::KvView& cache,
                               int32_t sequence) const {
  const std::vector<int32_t> zero = {0};
  const DeviceTensor overflow = device_ints(backend, {1}, zero);
  const int64_t first = sequence == 0 ? 0 : kLengths[0];
  for (int64_t begin = 0; begin < kLengths[sequence]; begin += kChunk) {
    const int64_t n = std::min(kChunk, kLengths[sequence] - begin);
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(begin + i));
    const std::vector<int32_t> sequences(static_cast<size_t>(n), sequence);
    const auto k_rows = rows_of(k_, kv_width(), first + begin, n);
    const auto v_rows = rows_of(v_, kv_width(), first + begin, n);
    const DeviceTensor k = device_floats(backend, {n, shape_.kv_heads, shape_.head_dim}, k_rows);
    const DeviceTensor v = device_floats(backend, {n, shape_.kv_heads, shape_.head_dim}, v_rows);
    const DeviceTensor p = device_ints(backend, {n}, positions);
    const DeviceTensor s = device_ints(backend, {n}, sequences);
    backend.kv_write({.k = k.view(),
                      .v = v.view(),
                      .positions = p.view(),
                      .sequences = s.view(),
                      .cache = cache,
                      .overflow = overflow.view()});
    backend.synchronize();
  }
  MB_CHECK_MSG(overflow.ints()[0] == 0, "kv_write reports an overflow where there is none");
}

std::vector<float> AttentionCase::run(ops::Backend& backend, int64_t begin, int64_t n) const {
  const ops::KvLayout layout{
      .type = shape_.type, .num_kv_heads = shape_.kv_heads, .head_dim = shape_.head_dim};
  const auto block_bytes = static_cast<int64_t>(backend.kv_block_bytes(layout));
  const DeviceTensor pool(backend, tensor::DType::kU8, {2 * table_blocks_ * block_bytes});
  const DeviceTensor table = device_ints(backend, {2, table_blocks_}, table_);
  const ops::KvView cache{
      .layout = layout, .blocks = pool.view().data, .block_table = table.view()};
  write_keys(backend, cache, 0);
  write_keys(backend, cache, 1);
  const auto q_rows = rows_of(q_, q_width(), begin, n);
  const DeviceTensor q = device_floats(backend, {n, shape_.heads, shape_.head_dim}, q_rows);
  const DeviceTensor positions = device_ints(backend, {n}, rows_of(positions_, 1, begin, n));
  const DeviceTensor sequences = device_ints(backend, {n}, rows_of(sequences_, 1, begin, n));
  const DeviceTensor y(backend, tensor::DType::kF32, {n, shape_.heads, shape_.head_dim});
  backend.attention({.q = q.view(),
                     .positions = positions.view(),
                     .sequences = sequences.view(),
                     .cache = cache,
                     .scale = scale(),
                     .window = shape_.window,
                     .y = y.view()});
  return y.floats();
}

// A score's error is that of a dot product of head_dim steps; every weight moves by at most the
// factor exp(2 error), and the sums over the keys add a rounding each.
void AttentionCase::add_head_bounds(int64_t row, int64_t head, std::vector<double>& bounds) const {
  const auto r = static_cast<size_t>(row);
  const int64_t last = positions_[r];
  const int64_t first = shape_.window == 0 ? 0 : std::max<int64_t>(0, last - shape_.window + 1);
  const int64_t base = sequences_[r] == 0 ? 0 : kLengths[0];
  const int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
  const auto head_of = [&](const std::vector<float>& all, int64_t p) {
    return rows_of(all, shape_.head_dim, (base + p) * shape_.kv_heads + kv_head, 1);
  };
  const auto q = rows_of(q_, shape_.head_dim, row * shape_.heads + head, 1);
  std::vector<double> scores;
  double score_error = 0.0;
  for (int64_t p = first; p <= last; ++p) {
    const auto k = head_of(k_, p);
    double dot = 0.0;
    double magnitude = 0.0;
    for (size_t i = 0; i < k.size(); ++i) {
      dot += double{q[i]} * double{k[i]};
      magnitude += std::fabs(double{q[i]} * double{k[i]});
    }
    scores.push_back(dot * double{scale()});
    const double steps = static_cast<double>(shape_.head_dim) + 4.0;
    score_error = std::max(score_error, steps * kHalfUlp * magnitude * double{scale()});
  }
  const auto [lowest, highest] = std::ranges::minmax(scores);
  const double num_keys = static_cast<double>(scores.size());
  // 1.1: the bound uses keys and values before they are rounded to the cache's type.
  const double relative =
      1.1 * std::expm1(2.0 * score_error + kHalfUlp * (highest - lowest + 8.0 + num_keys));
  double total = 0.0;
  std::vector<double> sums(static_cast<size_t>(shape_.head_dim), 0.0);
  for (int64_t p = first; p <= last; ++p) {
    const double weight = std::exp(scores[static_cast<size_t>(p - first)] - highest);
    total += weight;
    const auto v = head_of(v_, p);
    for (size_t i = 0; i < v.size(); ++i) sums[i] += weight * std::fabs(double{v[i]});
  }
  for (const double sum : sums) bounds.push_back(2.0 * relative * sum / total);
}

std::vector<double> AttentionCase::bound(std::span<const float>) const {
  std::vector<double> bounds;
  for (int64_t row = 0; row < num_rows(); ++row) {
    for (int64_t head = 0; head < shape_.heads; ++head) add_head_bounds(row, head, bounds);
  }
  return bounds;
}

}  // namespace

void add_attention_cases(OpCases& cases) {
  using ops::KvType;
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32, KvType::kQ8}) {
    for (const Shape& s :
         {Shape{type, 4, 1, 64, 0}, Shape{type, 4, 2, 16, 40}, Shape{type, 6, 6, 32, 64},
          Shape{type, 4, 1, 256, 0}, Shape{type, 4, 1, 256, 100}, Shape{type, 2, 1, 48, 1},
          Shape{type, 4, 2, 24, 0}, Shape{type, 2, 1, 2, 30}, Shape{type, 8, 2, 512, 0}}) {
      cases.push_back(std::make_unique<AttentionCase>(s));
    }
  }
}

}  // namespace markbase::testing
