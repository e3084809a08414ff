// Routing and experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

// Few values, so that many scores are equal.
std::vector<float> scores_with_ties(uint64_t seed, int64_t count) {
  std::vector<float> scores = random_floats(seed, count, 2.0F);
  for (float& s : scores) s = std::round(s * 4.0F) / 4.0F;
  return scores;
}

class RouteCase final : public OpCase {
 public:
  RouteCase(int64_t num_experts, int64_t top_k, bool ties)
      : num_experts_(num_experts),
        top_k_(top_k),
        ties_(ties),
        scores_(ties ? scores_with_ties(101, kRows * num_experts)
                     : random_floats(102, kRows * num_experts, 3.0F, 30)),
        scale_(random_floats(103, num_experts)) {}
  std::string name() const override {
    return fmt::format("route {} of {}{}", top_k_, num_experts_, ties_ ? " with ties" : "");
  }
  int64_t num_rows() const override { return kRows; }
  // Probabilities, ids and weights of each row.
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    const DeviceTensor scores =
        device_floats(backend, {n, num_experts_}, rows_of(scores_, num_experts_, begin, n));
    const DeviceTensor scale = device_floats(backend, {num_experts_}, scale_);
    const DeviceTensor ids(backend, tensor::DType::kI32, {n, top_k_});
    const DeviceTensor weights(backend, tensor::DType::kF32, {n, top_k_});
    backend.route({.scores = scores.view(),
                   .expert_scale = scale.view(),
                   .ids = ids.view(),
                   .weights = weights.view()});
    const std::vector<int32_t> chosen = ids.ints();
    const std::vector<float> as_floats(chosen.begin(), chosen.end());
    return joined_rows({scores.floats(), as_floats, weights.floats()}, n);
  }
  // Ids are exact. A probability is off by the rounding of its exponent (relative to which an error
  // is absolute), of exp, and of the sum; a weight by three of these.
  std::vector<double> bound(std::span<const float> expected) const override {
    std::vector<double> bounds;
    const int64_t width = num_experts_ + 2 * top_k_;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto scores = rows_of(scores_, num_experts_, row, 1);
      const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
      const double spread = double{*high} - double{*low};
      const double relative = (2.0 * spread + 8.0 + static_cast<double>(num_experts_)) * kHalfUlp;
      for (int64_t i = 0; i < width; ++i) {
        const double value = std::fabs(double{expected[static_cast<size_t>(row * width + i)]});
        const bool is_id = i >= num_experts_ && i < num_experts_ + top_k_;
        const bool is_weight = i >= num_experts_ + top_k_;
        constexpr double kSubnormals = 4.0 * 0x1p-149;
        const double error = (is_weight ? 3.0 : 1.0) * relative * value + kSubnormals;
        bounds.push_back(is_id ? 0.0 : error);
      }
    }
    return bounds;
  }

 private:
  static constexpr int64_t kRows = 11;
  int64_t num_experts_;
  int64_t top_k_;
  bool ties_;
  std::vector<float> scores_, scale_;
};

struct ExpertShape {
  int64_t tokens;
  int64_t num_experts;
  int64_t top_k;
  int64_t inputs;
  int64_t width;
};

class ExpertsCase final : public OpCase {
 public:
  ExpertsCase(const WeightKind& kind, const WeightKind& down_kind, const ExpertShape& shape)
      : kind_(kind),
        down_kind_(down_kind),
        shape_(shape),
        x_(random_floats(111, shape.tokens * shape.inputs, 1.5F, 200)),
        weights_(random_floats(112, shape.tokens * shape.top_k)) {
    for (uint64_t e = 0; e < static_cast<uint64_t>(shape.num_experts); ++e) {
      gate_.emplace_back(kind, shape.width, shape.inputs, 1000 + e);
      up_.emplace_back(kind, shape.width, shape.inputs, 2000 + e);
      down_.emplace_back(down_kind, shape.inputs, shape.width, 3000 + e);
    }
    // Low experts are chosen more often, so that some have many rows and some none.
    Random random(113);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      std::vector<int32_t> row;
      while (static_cast<int64_t>(row.size()) < shape.top_k) {
        const auto id = static_cast<int32_t>(random.below(random.below(shape.num_experts) + 1));
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      ids_.insert(ids_.end(), row.begin(), row.end());
    }
    weights_[0] = 0.0F;
  }
  std::string name() const override {
    return fmt::format("experts {}/{} {} rows, {} of {}, [{}, {}]", kind_.name(), down_kind_.name(),
                       shape_.tokens, shape_.top_k, shape_.num_experts, shape_.inputs,
                       shape_.width);
  }
  int64_t num_rows() const override { return shape_.tokens; }
  bool fused() const override { return true; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<float> run_composed(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<double> bound(std::span<const float> expected) const override;

 private:
  using Packed = std::vector<std::unique_ptr<ops::PackedWeight>>;
  static Packed pack_all(ops::Backend& backend, const std::vector<WeightData>& weights) {
    Packed packed;
    for (const WeightData& weight : weights) packed.push_back(pack_weight(backend, weight.view()));
    return packed;
  }

  WeightKind kind_;
  WeightKind down_kind_;
  ExpertShape shape_;
  std::vector<float> x_, weights_;
  std::vector<int32_t> ids_;
  std::vector<WeightData> gate_, up_, down_;
};

std::vector<float> ExpertsCase::run(ops::Backend& backend, int64_t begin, int64_t n) const {
  constexpr int64_t kPadding = 3;
  const Packed gate = pack_all(backend, gate_);
  const Packed up = pack_all(backend, up_);
  const Packed down = pack_all(backend, down_);
  const int64_t inputs = shape_.inputs;
  const auto rows = padded_rows(rows_of(x_, inputs, begin, n), inputs, kPadding);
  const DeviceTensor x = device_floats(backend, {n, inputs + kPadding}, rows);
  const DeviceTensor ids =
      device_ints(backend, {n, shape_.top_k}, rows_of(ids_, shape_.top_k, begin, n));
  const DeviceTensor weights =
      device_floats(backend, {n, shape_.top_k}, rows_of(weights_, shape_.top_k, begin, n));
  const DeviceTensor y(backend, tensor::DType::kF32, {n, inputs});
  backend.experts({.x = narrowed(x.view(), inputs),
                   .ids = ids.view(),
                   .weights = weights.view(),
                   .gate = gate,
                   .up = up,
                   .down = down,
                   .y = y.view()});
  return y.floats();
}

// Pair by pair through the plain ops.
std::vector<float> ExpertsCase::run_composed(ops::Backend& backend, int64_t begin,
                                             int64_t n) const {
  const Packed gate = pack_all(backend, gate_);
  const Packed up = pack_all(backend, up_);
  const Packed down = pack_all(backend, down_);
  const DeviceTensor gated(backend, tensor::DType::kF32, {1, shape_.width});
  const DeviceTensor upped(backend, tensor::DType::kF32, {1, shape_.width});
  const DeviceTensor out(backend, tensor::DType::kF32, {1, shape_.inputs});
  std::vector<float> y(static_cast<size_t>(n * shape_.inputs), 0.0F);
  for (int64_t t = 0; t < n; ++t) {
    const DeviceTensor x =
        device_floats(backend, {1, shape_.inputs}, rows_of(x_, shape_.inputs, begin + t, 1));
    for (int64_t k = 0; k < shape_.top_k; ++k) {
      const auto pair = static_cast<size_t>((begin + t) * shape_.top_k + k);
      const auto e = static_cast<size_t>(ids_[pair]);
      const ops::LinearTarget targets[] = {{gate[e].get(), gated.view()},
                                           {up[e].get(), upped.view()}};
      backend.linear({.x = x.view(), .targets = targets});
      backend.gelu_mul({.gate = gated.view(), .up = upped.view(), .y = gated.view()});
      const ops::LinearTarget target = {down[e].get(), out.view()};
      backend.linear({.x = gated.view(), .targets = {&target, 1}});
      const std::vector<float> d = out.floats();
      for (size_t i = 0; i < d.size(); ++i) {
        float& sum = y[static_cast<size_t>(t) * d.size() + i];
        sum = std::fma(weights_[pair], d[i], sum);
      }
    }
  }
  return y;
}

std::vector<double> exact_product(const quant::WeightView& weight, std::span<const double> x) {
  std::vector<double> y;
  std::vector<float> row(x.size());
  for (int64_t r = 0; r < weight.rows; ++r) {
    quant::decode_row(weight, r, row);
    double sum = 0.0;
    for (size_t i = 0; i < x.size(); ++i) sum += double{row[i]} * x[i];
    y.push_back(sum);
  }
  return y;
}

// The errors of gate and up pass through the product (the slope of gelu_tanh is below 1.13), its
// error through down.
std::vector<double> ExpertsCase::bound(std::span<const float>) const {
  constexpr double kSteepest = 1.13;
  std::vector<double> bounds(static_cast<size_t>(shape_.tokens * shape_.inputs), 0.0);
  for (int64_t t = 0; t < shape_.tokens; ++t) {
    const std::vector<double> x = widened(rows_of(x_, shape_.inputs, t, 1));
    for (int64_t k = 0; k < shape_.top_k; ++k) {
      const auto pair = static_cast<size_t>(t * shape_.top_k + k);
      const auto e = static_cast<size_t>(ids_[pair]);
      const std::vector<double> gate = exact_product(gate_[e].view(), x);
      const std::vector<double> up = exact_product(up_[e].view(), x);
      const std::vector<double> gate_error = linear_bound(gate_[e].view(), x, {});
      const std::vector<double> up_error = linear_bound(up_[e].view(), x, {});
      std::vector<double> product;
      std::vector<double> error;
      for (size_t m = 0; m < gate.size(); ++m) {
        const double g = std::fabs(gate[m]) + gate_error[m];
        const double u = std::fabs(up[m]) + up_error[m];
        product.push_back(exact_gelu_tanh(gate[m]) * up[m]);
        error.push_back(kSteepest * gate_error[m] * u + g * up_error[m] + 9.0 * kHalfUlp * g * u);
      }
      const std::vector<double> down = exact_product(down_[e].view(), product);
      const std::vector<double> down_error = linear_bound(down_[e].view(), product, error);
      const double weight = std::fabs(double{weights_[pair]});
      for (size_t i = 0; i < down.size(); ++i) {
        const double rounding = static_cast<double>(shape_.top_k + 1) * kHalfUlp;
        bounds[static_cast<size_t>(t) * down.size() + i] +=
            weight * (down_error[i] + rounding * (std::fabs(down[i]) + down_error[i]));
      }
    }
  }
  return bounds;
}

}  // namespace

void add_expert_cases(OpCases& cases) {
  using quant::Format;
  for (const bool ties : {false, true}) {
    cases.push_back(std::make_unique<RouteCase>(128, 8, ties));
    cases.push_back(std::make_unique<RouteCase>(7, 3, ties));
    cases.push_back(std::make_unique<RouteCase>(5, 5, ties));
    cases.push_back(std::make_unique<RouteCase>(1, 1, ties));
  }
  const WeightKind f32{Format::kF32}, bf16{Format::kBF16}, q80{Format::kQ8_0}, q40{Format::kQ4_0};
  const WeightKind q4k{Format::kQ4_K}, q6k{Format::kQ6_K}, mxfp4{Format::kMXFP4};
  const WeightKind affine{Format::kAffine, 4, 64, tensor::DType::kBF16};
  const auto add = [&](const WeightKind& kind, const WeightKind& down, const ExpertShape& shape) {
    cases.push_back(std::make_unique<ExpertsCase>(kind, down, shape));
  };
  add(f32, f32, {9, 4, 2, 67, 33});
  add(bf16, bf16, {21, 5, 3, 64, 40});
  add(affine, affine, {40, 6, 2, 320, 64});
  add(affine, q80, {11, 50, 8, 64, 32});
  add(q4k, q80, {26, 3, 2, 256, 96});
  add(q6k, q40, {12, 4, 4, 512, 160});
  add(mxfp4, mxfp4, {17, 2, 1, 96, 288});
  add(q80, bf16, {10, 3, 1, 32, 17});
}

}  // namespace markbase::testing
