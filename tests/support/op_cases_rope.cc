#include <fmt/format.h>

#include <cmath>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

constexpr int64_t kTokens = 9;
constexpr int64_t kPositions = 300;
constexpr float kEps = 1e-6F;

// rope, or norm_rope where there is a norm. Tokens stand apart by `padding` floats, as q, k and v
// do in one joined row.
class RopeCase final : public OpCase {
 public:
  RopeCase(int64_t heads, int64_t head_dim, bool normed, int64_t padding)
      : heads_(heads), head_dim_(head_dim), normed_(normed), padding_(padding) {
    x_ = random_floats(71, kTokens * width(), 2.0F, 60);
    weight_ = random_floats(72, head_dim);
    Random random(73);
    for (int64_t t = 0; t < kTokens; ++t) {
      positions_.push_back(static_cast<int32_t>(random.below(kPositions)));
    }
    positions_[0] = 0;
    std::vector<float> inv_freq;
    for (int64_t k = 0; k < head_dim / 2; ++k) {
      inv_freq.push_back(1.0F / (1.0F + 10.0F * static_cast<float>(k)));
    }
    table_.resize(static_cast<size_t>(kPositions * head_dim));
    ops::fill_rope_table(inv_freq, 0, kPositions, table_.data());
  }
  std::string name() const override {
    return fmt::format("{} heads {} head_dim {} padding {}", normed_ ? "norm_rope" : "rope", heads_,
                       head_dim_, padding_);
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
  bool normed_;
  int64_t padding_;
  std::vector<float> x_, weight_, table_;
  std::vector<int32_t> positions_;
};

std::vector<float> RopeCase::run_form(ops::Backend& backend, int64_t begin, int64_t n,
                                      bool composed) const {
  const auto rows = padded_rows(rows_of(x_, width(), begin, n), width(), padding_);
  const DeviceTensor buffer = device_floats(backend, {n, width() + padding_}, rows);
  const DeviceTensor positions = device_ints(backend, {n}, rows_of(positions_, 1, begin, n));
  const DeviceTensor table = device_floats(backend, {kPositions, head_dim_}, table_);
  const DeviceTensor weight = device_floats(backend, {head_dim_}, weight_);
  tensor::TensorView x = buffer.view();
  x.rank = 3;
  x.shape = {n, heads_, head_dim_};
  x.stride = {width() + padding_, head_dim_, 1};
  if (!normed_) {
    backend.rope({.x = x, .positions = positions.view(), .table = table.view()});
  } else {
    const ops::NormRopeArgs args{.x = x,
                                 .weight = weight.view(),
                                 .eps = kEps,
                                 .positions = positions.view(),
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
    const auto table = rows_of(table_, head_dim_, positions_[static_cast<size_t>(t)], 1);
    for (int64_t h = 0; h < heads_; ++h) {
      std::vector<double> x = widened(rows_of(x_, head_dim_, t * heads_ + h, 1));
      if (normed_) x = exact_rms_norm(x, weight_, kEps);
      for (int64_t i = 0; i < head_dim_; ++i) {
        const auto k = static_cast<size_t>(i % half);
        const double cosine = table[k];
        const double sine = table[k + static_cast<size_t>(half)];
        const double self = x[static_cast<size_t>(i)];
        const double other = x[static_cast<size_t>((i + half) % head_dim_)];
        bounds.push_back(relative * (std::fabs(self * cosine) + std::fabs(other * sine)));
      }
    }
    bounds.insert(bounds.end(), static_cast<size_t>(padding_), 0.0);
  }
  return bounds;
}

}  // namespace

void add_rope_cases(OpCases& cases) {
  struct Shape {
    int64_t heads, head_dim, padding;
  };
  for (const Shape s : {Shape{1, 2, 0}, {3, 6, 0}, {4, 64, 96}, {1, 256, 0}, {2, 80, 7}}) {
    for (const bool normed : {false, true}) {
      cases.push_back(std::make_unique<RopeCase>(s.heads, s.head_dim, normed, s.padding));
    }
  }
}

}  // namespace markbase::testing
