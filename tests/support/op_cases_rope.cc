#include <fmt/format.h>

#include <cmath>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

constexpr int64_t kTokens = 9;
constexpr int32_t kTableRows = 300;
constexpr float kEps = 1e-6F;

std::vector<float> frequencies(int64_t pairs) {
  std::vector<float> out;
  for (int64_t k = 0; k < pairs; ++k) {
    out.push_back(1.0F / (1.0F + 10.0F * static_cast<float>(k)));
  }
  return out;
}

// rope, or norm_rope where there is a norm. Tokens stand apart by `padding` floats, as q, k and v
// do in one joined row.
class RopeCase final : public OpCase {
 public:
  RopeCase(int64_t heads, int64_t head_dim, int64_t pairs, bool normed, int64_t padding)
      : heads_(heads), head_dim_(head_dim), pairs_(pairs), normed_(normed), padding_(padding) {
    x_ = random_floats(71, kTokens * width(), 2.0F, 60);
    weight_ = random_floats(72, head_dim);
    Random random(73);
    for (int64_t t = 0; t < kTokens; ++t) {
      table_rows_.push_back(static_cast<int32_t>(random.below(kTableRows)));
    }
    table_rows_[0] = 0;
    const std::vector<float> inv_freq = frequencies(pairs);
    table_.resize(static_cast<size_t>(kTableRows * 2 * pairs));
    for (int32_t row = 0; row < kTableRows; ++row) {
      ops::fill_rope_row(inv_freq, row, table_.data() + row * 2 * pairs);
    }
  }
  std::string name() const override {
    return fmt::format("{} heads {} head_dim {} pairs {} padding {}",
                       normed_ ? "norm_rope" : "rope", heads_, head_dim_, pairs_, padding_);
  }
  int64_t num_rows() const override { return kTokens; }
  bool fused() const override { return normed_; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, false);
  }
  std::vector<float> run_composed(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, true);
  }
  std::vector<double> bound(std::span<const float>) const override;

 private:
  int64_t width() const { return heads_ * head_dim_; }
  std::vector<float> run_form(ops::Backend& backend, int64_t begin, int64_t n, bool composed) const;

  int64_t heads_;
  int64_t head_dim_;
  int64_t pairs_;  // that turn
  bool normed_;
  int64_t padding_;
  std::vector<float> x_, weight_, table_;
  std::vector<int32_t> table_rows_;
};

std::vector<float> RopeCase::run_form(ops::Backend& backend, int64_t begin, int64_t n,
                                      bool composed) const {
  const auto rows = padded_rows(rows_of(x_, width(), begin, n), width(), padding_);
  const DeviceTensor buffer = device_floats(backend, {n, width() + padding_}, rows);
  const DeviceTensor table_rows = device_ints(backend, {n}, rows_of(table_rows_, 1, begin, n));
  const DeviceTensor table = device_floats(backend, {kTableRows, 2 * pairs_}, table_);
  const DeviceTensor weight = device_floats(backend, {head_dim_}, weight_);
  tensor::TensorView x = buffer.view();
  x.rank = 3;
  x.shape = {n, heads_, head_dim_};
  x.stride = {width() + padding_, head_dim_, 1};
  if (!normed_) {
    backend.rope({.x = x, .table_rows = table_rows.view(), .table = table.view()});
  } else {
    const ops::NormRopeArgs args{.x = x,
                                 .weight = weight.view(),
                                 .eps = kEps,
                                 .table_rows = table_rows.view(),
                                 .table = table.view()};
    if (composed) {
      ops::compose(backend, args);
    } else {
      backend.norm_rope(args);
    }
  }
  return buffer.floats();  // the padding too: it must be left alone
}

std::vector<double> RopeCase::bound(std::span<const float>) const {
  std::vector<double> bounds;
  const int64_t half = head_dim_ / 2;
  // Two products and a sum, on inputs that the norm has already moved.
  const double relative = 3.0 * kHalfUlp + (normed_ ? rms_norm_relative_error(head_dim_) : 0.0);
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto table = rows_of(table_, 2 * pairs_, table_rows_[static_cast<size_t>(t)], 1);
    for (int64_t h = 0; h < heads_; ++h) {
      std::vector<double> x = widened(rows_of(x_, head_dim_, t * heads_ + h, 1));
      if (normed_) x = exact_rms_norm(x, weight_, kEps);
      for (int64_t i = 0; i < head_dim_; ++i) {
        const auto k = static_cast<size_t>(i % half);
        const double self = x[static_cast<size_t>(i)];
        if (i % half >= pairs_) {
          bounds.push_back(normed_ ? relative * std::fabs(self) : 0.0);
          continue;
        }
        const double cosine = table[k];
        const double sine = table[k + static_cast<size_t>(pairs_)];
        const double other = x[static_cast<size_t>((i + half) % head_dim_)];
        bounds.push_back(relative * (std::fabs(self * cosine) + std::fabs(other * sine)));
      }
    }
    bounds.insert(bounds.end(), static_cast<size_t>(padding_), 0.0);
  }
  return bounds;
}

// Every backend holds the same bits.
class RopeTableCase final : public OpCase {
 public:
  explicit RopeTableCase(int64_t pairs) : inv_freq_(frequencies(pairs)) {
    Random random(74);
    for (int64_t t = 0; t < kRows; ++t) {
      positions_.push_back(static_cast<int32_t>(random.below(262'144)));
    }
    positions_[1] = 0;
  }
  std::string name() const override {
    return fmt::format("rope_table of {} pairs", inv_freq_.size());
  }
  int64_t num_rows() const override { return kRows; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    const auto pairs = static_cast<int64_t>(inv_freq_.size());
    const DeviceTensor positions = device_ints(backend, {n}, rows_of(positions_, 1, begin, n));
    const DeviceTensor inv_freq = device_floats(backend, {pairs}, inv_freq_);
    const DeviceTensor table = device_floats(
        backend, {n, 2 * pairs}, std::vector<float>(static_cast<size_t>(n * 2 * pairs), -7.0F));
    backend.rope_table(
        {.positions = positions.view(), .inv_freq = inv_freq.view(), .table = table.view()});
    return table.floats();
  }
  std::vector<double> bound(std::span<const float> expected) const override {
    return std::vector<double>(expected.size(), 0.0);
  }

 private:
  static constexpr int64_t kRows = 70;
  std::vector<float> inv_freq_;
  std::vector<int32_t> positions_;
};

}  // namespace

void add_rope_cases(OpCases& cases) {
  struct Shape {
    int64_t heads, head_dim, pairs, padding;
  };
  for (const Shape s : {Shape{1, 2, 1, 0},
                        {3, 6, 3, 0},
                        {4, 64, 32, 96},
                        {1, 256, 128, 0},
                        {2, 80, 40, 7},
                        {2, 512, 64, 0},
                        {3, 48, 6, 5},
                        {2, 16, 0, 0}}) {
    for (const bool normed : {false, true}) {
      cases.push_back(std::make_unique<RopeCase>(s.heads, s.head_dim, s.pairs, normed, s.padding));
    }
  }
  for (const int64_t pairs : {1, 7, 64, 128}) {
    cases.push_back(std::make_unique<RopeTableCase>(pairs));
  }
}

}  // namespace markbase::testing
