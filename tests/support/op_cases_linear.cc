#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

// Activations enter integer products as 16-bit integers with one scale for 256 columns.
constexpr int64_t kSegment = 256;
constexpr double kActivationSteps = 32512.0;
constexpr int64_t kSpan = 1024;

// A weight's row as linear_bound needs it.
struct RowFacts {
  std::vector<float> values;
  std::vector<float> offsets;  // one a group; zeros where there is none
  int64_t group = 1;
};

RowFacts facts_of(const quant::WeightView& weight, int64_t row) {
  RowFacts facts;
  facts.values.resize(static_cast<size_t>(weight.cols));
  quant::decode_row(weight, row, facts.values);
  const auto layout = quant::grouped_layout(weight);
  if (!layout) return facts;
  facts.group = layout->group_size;
  facts.offsets.assign(static_cast<size_t>(weight.cols / layout->group_size), 0.0F);
  std::vector<float> scales(facts.offsets.size());
  quant::unpack_scales(weight, row, scales, facts.offsets);
  if (!layout->has_offset) std::ranges::fill(facts.offsets, 0.0F);
  return facts;
}

// Roundings that one output's longest path meets: conversion and scale (and offset) of every group
// of a segment, segments of a span, spans; plain floats have one for each column of a segment.
double rounding_steps(const RowFacts& facts, int64_t cols) {
  const bool grouped = !facts.offsets.empty();
  const int64_t inside = std::min(cols, kSegment);
  const int64_t steps = grouped ? 2 * (inside / facts.group) + 2 : inside;
  return static_cast<double>(steps + kSpan / kSegment + cols / kSpan + 4);
}

double output_bound(const RowFacts& facts, std::span<const double> x,
                    std::span<const double> x_error) {
  const bool grouped = !facts.offsets.empty();
  const auto cols = static_cast<int64_t>(x.size());
  double moved = 0.0;      // what the rounding of x does
  double magnitude = 0.0;  // what the roundings of the sums are relative to
  for (int64_t begin = 0; begin < cols; begin += kSegment) {
    const int64_t end = std::min(begin + kSegment, cols);
    double largest = 0.0;
    for (int64_t k = begin; k < end; ++k) {
      largest = std::max(largest, std::fabs(x[static_cast<size_t>(k)]));
    }
    const double half_step = grouped ? largest / kActivationSteps / 2.0 : 0.0;
    for (int64_t k = begin; k < end; ++k) {
      const auto i = static_cast<size_t>(k);
      const double w = std::fabs(double{facts.values[i]});
      const double b =
          grouped ? std::fabs(double{facts.offsets[static_cast<size_t>(k / facts.group)]}) : 0.0;
      const double error = x_error.empty() ? 0.0 : x_error[i];
      moved += w * (half_step * 1.01 + error);
      // scale * code and the offset are summed apart, and may cancel.
      magnitude += (w + 2.0 * b) * (std::fabs(x[i]) + half_step);
    }
  }
  return moved + rounding_steps(facts, cols) * kHalfUlp * magnitude;
}

// A few rows of x, one with an empty segment and one all zero.
std::vector<float> activations(uint64_t seed, int64_t rows, int64_t cols) {
  std::vector<float> x = random_floats(seed, rows * cols, 1.5F, 200);
  if (rows > 2) std::fill_n(x.begin() + 2 * cols, std::min(cols, kSegment), 0.0F);
  if (rows > 3) std::fill_n(x.begin() + 3 * cols, cols, 0.0F);
  return x;
}

struct Target {
  WeightKind kind;
  int64_t outputs;
};

class LinearCase final : public OpCase {
 public:
  LinearCase(std::vector<Target> targets, int64_t tokens, int64_t cols, int64_t padding)
      : targets_(std::move(targets)),
        tokens_(tokens),
        cols_(cols),
        padding_(padding),
        x_(activations(81, tokens, cols)) {
    uint64_t seed = 82;
    for (const Target& t : targets_) weights_.emplace_back(t.kind, t.outputs, cols, seed += 10);
  }
  std::string name() const override {
    std::string text = fmt::format("linear [{}, {}] padding {}", tokens_, cols_, padding_);
    for (const Target& t : targets_) text += fmt::format(" {}x{}", t.outputs, t.kind.name());
    return text;
  }
  int64_t num_rows() const override { return tokens_; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<double> bound(std::span<const float>) const override {
    std::vector<std::vector<double>> bounds;
    for (const WeightData& weight : weights_) {
      bounds.push_back(linear_bound(weight.view(), widened(x_), {}));
    }
    std::vector<double> joined;
    for (int64_t t = 0; t < tokens_; ++t) {
      for (size_t w = 0; w < bounds.size(); ++w) {
        const auto begin = bounds[w].begin() + t * targets_[w].outputs;
        joined.insert(joined.end(), begin, begin + targets_[w].outputs);
      }
    }
    return joined;
  }

 private:
  std::vector<Target> targets_;
  int64_t tokens_;
  int64_t cols_;
  int64_t padding_;
  std::vector<float> x_;
  std::vector<WeightData> weights_;
};

// All targets write into one joined row, as q, k and v do.
std::vector<float> LinearCase::run(ops::Backend& backend, int64_t begin, int64_t n) const {
  const auto rows = padded_rows(rows_of(x_, cols_, begin, n), cols_, padding_);
  const DeviceTensor x = device_floats(backend, {n, cols_ + padding_}, rows);
  int64_t width = 0;
  for (const Target& t : targets_) width += t.outputs;
  const DeviceTensor y(backend, tensor::DType::kF32, {n, width});
  std::vector<std::unique_ptr<ops::PackedWeight>> packed;
  std::vector<ops::LinearTarget> targets;
  int64_t offset = 0;
  for (const WeightData& weight : weights_) {
    packed.push_back(pack_weight(backend, weight.view()));
    tensor::TensorView part = y.view();
    part.data = static_cast<float*>(part.data) + offset;
    part.shape[1] = weight.view().rows;
    targets.push_back({.weight = packed.back().get(), .y = part});
    offset += weight.view().rows;
  }
  backend.linear({.x = narrowed(x.view(), cols_), .targets = targets});
  return y.floats();
}

class GatedLinearCase final : public OpCase {
 public:
  GatedLinearCase(const WeightKind& kind, int64_t tokens, int64_t cols, int64_t outputs)
      : kind_(kind),
        tokens_(tokens),
        cols_(cols),
        weight_(kind, outputs, cols, 91),
        gate_(activations(92, tokens, cols)),
        up_(activations(93, tokens, cols)) {}
  std::string name() const override {
    return fmt::format("gated_linear {} [{}, {}] {}", kind_.name(), tokens_, cols_,
                       weight_.view().rows);
  }
  int64_t num_rows() const override { return tokens_; }
  bool fused() const override { return true; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, false);
  }
  std::vector<float> run_composed(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, true);
  }
  std::vector<double> bound(std::span<const float>) const override {
    std::vector<double> x;
    std::vector<double> error;
    for (size_t i = 0; i < gate_.size(); ++i) {
      const double gate = gate_[i];
      const double up = up_[i];
      x.push_back(exact_gelu_tanh(gate) * up);
      error.push_back(9.0 * kHalfUlp * std::fabs(gate * up));
    }
    return linear_bound(weight_.view(), x, error);
  }

 private:
  std::vector<float> run_form(ops::Backend& backend, int64_t begin, int64_t n,
                              bool composed) const {
    const auto packed = pack_weight(backend, weight_.view());
    const DeviceTensor gate = device_floats(backend, {n, cols_}, rows_of(gate_, cols_, begin, n));
    const DeviceTensor up = device_floats(backend, {n, cols_}, rows_of(up_, cols_, begin, n));
    const DeviceTensor y(backend, tensor::DType::kF32, {n, weight_.view().rows});
    const ops::GatedLinearArgs args{
        .gate = gate.view(), .up = up.view(), .target = {.weight = packed.get(), .y = y.view()}};
    if (composed) {
      ops::compose(backend, args);
    } else {
      backend.gated_linear(args);
    }
    return y.floats();
  }

  WeightKind kind_;
  int64_t tokens_;
  int64_t cols_;
  WeightData weight_;
  std::vector<float> gate_, up_;
};

// Columns worth trying: short and long, with a last segment that is not whole where the format has
// any.
std::vector<int64_t> columns_for(const WeightKind& kind) {
  if (kind.col_unit() == 1) return {1, 7, 67, 257, 1153};
  if (kind.col_unit() == 256) return {256, 1280};
  return {kind.col_unit(), 640, 1152 + kind.col_unit()};
}

}  // namespace

std::vector<double> linear_bound(const quant::WeightView& weight, std::span<const double> x,
                                 std::span<const double> x_error) {
  const auto cols = static_cast<size_t>(weight.cols);
  const size_t tokens = x.size() / cols;
  std::vector<double> bounds(tokens * static_cast<size_t>(weight.rows));
  for (int64_t row = 0; row < weight.rows; ++row) {
    const RowFacts facts = facts_of(weight, row);
    for (size_t t = 0; t < tokens; ++t) {
      const auto error = x_error.empty() ? x_error : x_error.subspan(t * cols, cols);
      bounds[t * static_cast<size_t>(weight.rows) + static_cast<size_t>(row)] =
          output_bound(facts, x.subspan(t * cols, cols), error);
    }
  }
  return bounds;
}

void add_linear_cases(OpCases& cases) {
  using quant::Format;
  for (const WeightKind& kind : all_weight_kinds()) {
    int64_t outputs = 17;
    for (const int64_t cols : columns_for(kind)) {
      const std::vector<Target> one = {{kind, outputs}};
      cases.push_back(std::make_unique<LinearCase>(one, 9, cols, cols % 2 == 0 ? 0 : 3));
      outputs = outputs == 17 ? 49 : 1;
    }
    const int64_t cols = kind.col_unit() == 1 ? 301 : 768;
    cases.push_back(std::make_unique<GatedLinearCase>(kind, 5, cols, 33));
  }
  // Many rows, several weights of different formats for one x, and a long K.
  const WeightKind q4k{Format::kQ4_K}, q6k{Format::kQ6_K}, q80{Format::kQ8_0}, bf16{Format::kBF16};
  cases.push_back(std::make_unique<LinearCase>(
      std::vector<Target>{{q4k, 64}, {q6k, 16}, {q80, 23}, {bf16, 5}}, 40, 512, 0));
  cases.push_back(
      std::make_unique<LinearCase>(std::vector<Target>{{q80, 130}, {q80, 130}}, 101, 640, 32));
  cases.push_back(std::make_unique<LinearCase>(std::vector<Target>{{q4k, 20}}, 8, 3840, 0));
  cases.push_back(std::make_unique<LinearCase>(std::vector<Target>{{bf16, 20}}, 8, 3333, 0));
}

}  // namespace markbase::testing
