// Embedding, norms and elementwise ops.
#include <fmt/format.h>

#include <cmath>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

constexpr int64_t kRows = 11;
constexpr float kEps = 1e-6F;

class EmbeddingCase final : public OpCase {
 public:
  EmbeddingCase(const WeightKind& kind, int64_t cols, bool mapped)
      : kind_(kind), table_(kind, kVocab, cols, 31), cols_(cols), mapped_(mapped) {
    Random random(32);
    for (int64_t i = 0; i < kRows; ++i) ids_.push_back(static_cast<int32_t>(random.below(kVocab)));
    ids_[1] = 0;
    ids_[2] = kVocab - 1;
  }
  std::string name() const override {
    return fmt::format("embedding {}{} [{}, {}]", kind_.name(), mapped_ ? " mapped" : "", kVocab,
                       cols_);
  }
  int64_t num_rows() const override { return kRows; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    const auto table = table_in(backend);
    const DeviceTensor ids = device_ints(backend, {n}, rows_of(ids_, 1, begin, n));
    const DeviceTensor y(backend, tensor::DType::kF32, {n, cols_});
    backend.embedding({.ids = ids.view(), .table = table.get(), .scale = 25.25F, .y = y.view()});
    return y.floats();
  }
  // Decoding and the scale are exact operations, rounded once each.
  std::vector<double> bound(std::span<const float> expected) const override {
    return std::vector<double>(expected.size(), 0.0);
  }

 private:
  std::unique_ptr<ops::PackedWeight> table_in(ops::Backend& backend) const {
    if (!mapped_) return pack_weight(backend, table_.view());
    auto mapped = backend.map_table(table_.view(), "table");
    MB_CHECK(mapped.ok());
    return std::move(mapped).value();
  }

  static constexpr int32_t kVocab = 37;
  WeightKind kind_;
  WeightData table_;
  int64_t cols_;
  bool mapped_;
  std::vector<int32_t> ids_;
};

class RmsNormCase final : public OpCase {
 public:
  RmsNormCase(int64_t width, bool weighted, int64_t padding)
      : width_(width), padding_(padding), x_(random_floats(41, kRows * width, 3.0F, 50)) {
    if (weighted) weight_ = random_floats(42, width);
  }
  std::string name() const override {
    return fmt::format("rms_norm {} {}padding {}", width_, weight_.empty() ? "no weight " : "",
                       padding_);
  }
  int64_t num_rows() const override { return kRows; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    const auto rows = padded_rows(rows_of(x_, width_, begin, n), width_, padding_);
    const DeviceTensor x = device_floats(backend, {n, width_ + padding_}, rows);
    const DeviceTensor w = device_floats(backend, {static_cast<int64_t>(weight_.size())}, weight_);
    const DeviceTensor y(backend, tensor::DType::kF32, {n, width_});
    backend.rms_norm({.x = narrowed(x.view(), width_),
                      .weight = weight_.empty() ? tensor::TensorView{} : w.view(),
                      .eps = kEps,
                      .y = y.view()});
    return y.floats();
  }
  std::vector<double> bound(std::span<const float> expected) const override {
    std::vector<double> bounds;
    for (const float y : expected) {
      bounds.push_back(rms_norm_relative_error(width_) * std::fabs(static_cast<double>(y)));
    }
    return bounds;
  }

 private:
  int64_t width_;
  int64_t padding_;
  std::vector<float> x_, weight_;
};

class AddRmsNormCase final : public OpCase {
 public:
  AddRmsNormCase(int64_t width, bool has_next, float scale)
      : width_(width),
        has_next_(has_next),
        scale_(scale),
        x_(random_floats(51, kRows * width)),
        residual_(random_floats(52, kRows * width, 4.0F, 100)),
        post_(random_floats(53, width)),
        next_(random_floats(54, width)) {}
  std::string name() const override {
    return fmt::format("add_rms_norm {} scale {}{}", width_, scale_,
                       has_next_ ? "" : " residual only");
  }
  int64_t num_rows() const override { return kRows; }
  bool fused() const override { return true; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, false);
  }
  std::vector<float> run_composed(ops::Backend& backend, int64_t begin, int64_t n) const override {
    return run_form(backend, begin, n, true);
  }
  std::vector<double> bound(std::span<const float> expected) const override;

 private:
  std::vector<float> run_form(ops::Backend& backend, int64_t begin, int64_t n,
                              bool composed) const {
    const DeviceTensor x = device_floats(backend, {n, width_}, rows_of(x_, width_, begin, n));
    const DeviceTensor residual =
        device_floats(backend, {n, width_}, rows_of(residual_, width_, begin, n));
    const DeviceTensor post = device_floats(backend, {width_}, post_);
    const DeviceTensor next = device_floats(backend, {width_}, next_);
    const DeviceTensor y(backend, tensor::DType::kF32, {n, width_});
    ops::AddRmsNormArgs args{.x = x.view(),
                             .post_weight = post.view(),
                             .residual = residual.view(),
                             .scale = scale_,
                             .next_weight = {},
                             .eps = kEps,
                             .y = {}};
    if (has_next_) {
      args.next_weight = next.view();
      args.y = y.view();
    }
    if (composed) {
      ops::compose(backend, args);
    } else {
      backend.add_rms_norm(args);
    }
    if (!has_next_) return residual.floats();
    return joined_rows({residual.floats(), y.floats()}, n);
  }

  int64_t width_;
  bool has_next_;
  float scale_;
  std::vector<float> x_, residual_, post_, next_;
};

// The error of the new residual is that of the norm, of one addition and of the scale; it passes
// through the second norm directly and by way of the sum of squares.
std::vector<double> AddRmsNormCase::bound(std::span<const float> expected) const {
  std::vector<double> bounds;
  const double relative = rms_norm_relative_error(width_);
  const auto row_width = static_cast<size_t>(has_next_ ? 2 * width_ : width_);
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<double> x = widened(rows_of(x_, width_, row, 1));
    const std::vector<double> norm = exact_rms_norm(x, post_, kEps);
    const auto out = expected.subspan(static_cast<size_t>(row) * row_width, row_width);
    std::vector<double> error;
    double squares = 0.0;
    double moved = 0.0;
    for (size_t i = 0; i < norm.size(); ++i) {
      const double r = std::fabs(static_cast<double>(out[i]));
      error.push_back(relative * std::fabs(norm[i] * double{scale_}) + 4.0 * kHalfUlp * r);
      squares += r * r;
      moved += r * error.back();
    }
    bounds.insert(bounds.end(), error.begin(), error.end());
    if (!has_next_) continue;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width_) + double{kEps});
    for (size_t i = 0; i < norm.size(); ++i) {
      const double y = std::fabs(static_cast<double>(out[i + norm.size()]));
      const double w = std::fabs(static_cast<double>(next_[i]));
      bounds.push_back(w * factor * error[i] + y * (moved / squares + relative));
    }
  }
  return bounds;
}

enum class Elementwise { kAdd, kGeluMul, kGeluMulInPlace, kSoftCap, kScale, kGather };

class ElementwiseCase final : public OpCase {
 public:
  ElementwiseCase(Elementwise op, int64_t width)
      : op_(op),
        width_(width),
        x_(random_floats(61, kRows * width, 3.0F, 40)),
        y_(random_floats(62, kRows * width, 3.0F)) {}
  std::string name() const override {
    static constexpr const char* kNames[] = {"add",      "gelu_mul", "gelu_mul in place",
                                             "soft_cap", "scale",    "gather_rows"};
    return fmt::format("{} {}", kNames[static_cast<size_t>(op_)], width_);
  }
  int64_t num_rows() const override { return kRows; }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<double> bound(std::span<const float> expected) const override {
    std::vector<double> bounds(expected.size(), 0.0);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (op_ == Elementwise::kGeluMul || op_ == Elementwise::kGeluMulInPlace) {
        // 1 + tanh may be formed with an absolute error of some roundings.
        bounds[i] = 8.0 * kHalfUlp * std::fabs(double{x_[i]} * double{y_[i]});
      } else if (op_ == Elementwise::kSoftCap) {
        bounds[i] = 8.0 * kHalfUlp * std::fabs(double{expected[i]});
      }
    }
    return bounds;
  }

 private:
  Elementwise op_;
  int64_t width_;
  std::vector<float> x_, y_;
};

std::vector<float> ElementwiseCase::run(ops::Backend& backend, int64_t begin, int64_t n) const {
  const DeviceTensor x = device_floats(backend, {n, width_}, rows_of(x_, width_, begin, n));
  const DeviceTensor y = device_floats(backend, {n, width_}, rows_of(y_, width_, begin, n));
  const DeviceTensor out(backend, tensor::DType::kF32, {n, width_});
  switch (op_) {
    case Elementwise::kAdd:
      backend.add({.x = x.view(), .y = y.view()});
      return y.floats();
    case Elementwise::kGeluMul:
      backend.gelu_mul({.gate = x.view(), .up = y.view(), .y = out.view()});
      return out.floats();
    case Elementwise::kGeluMulInPlace:
      backend.gelu_mul({.gate = x.view(), .up = y.view(), .y = x.view()});
      return x.floats();
    case Elementwise::kSoftCap:
      backend.soft_cap({.x = x.view(), .cap = 30.0F});
      return x.floats();
    case Elementwise::kScale:
      backend.scale({.x = x.view(), .factor = 0.7F});
      return x.floats();
    case Elementwise::kGather:
      break;
  }
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(static_cast<int32_t>((begin + i) * 5 % kRows));
  const DeviceTensor all = device_floats(backend, {kRows, width_}, x_);
  const DeviceTensor indices = device_ints(backend, {n}, rows);
  backend.gather_rows({.x = all.view(), .rows = indices.view(), .y = out.view()});
  return out.floats();
}

}  // namespace

void add_row_cases(OpCases& cases) {
  for (const WeightKind& kind : all_weight_kinds()) {
    for (const bool mapped : {false, true}) {
      cases.push_back(
          std::make_unique<EmbeddingCase>(kind, kind.col_unit() == 1 ? 67 : 768, mapped));
    }
  }
  for (const int64_t width : {1, 7, 16, 33, 640, 1153}) {
    for (const bool weighted : {true, false}) {
      cases.push_back(std::make_unique<RmsNormCase>(width, weighted, weighted ? 0 : 5));
    }
    for (const bool has_next : {true, false}) {
      for (const float scale : {1.0F, 0.71F}) {
        cases.push_back(std::make_unique<AddRmsNormCase>(width, has_next, scale));
      }
    }
    for (const auto op : {Elementwise::kAdd, Elementwise::kGeluMul, Elementwise::kGeluMulInPlace,
                          Elementwise::kSoftCap, Elementwise::kScale, Elementwise::kGather}) {
      cases.push_back(std::make_unique<ElementwiseCase>(op, width));
    }
  }
}

}  // namespace markbase::testing
