// Log probabilities.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/op_case_util.h"

namespace markbase::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMaxTop = 20;
// Stand for NaN and -infinity, which compare() takes for errors: no logprob is as high or as low.
constexpr float kNoLogprob = 1.0F;
constexpr float kImpossible = -1e30F;

class TokenLogprobsCase final : public OpCase {
 public:
  TokenLogprobsCase(int64_t vocab, int64_t padding);
  std::string name() const override {
    return fmt::format("token_logprobs {} padding {}", vocab_, padding_);
  }
  int64_t num_rows() const override { return static_cast<int64_t>(ids_.size()); }
  std::vector<float> run(ops::Backend& backend, int64_t begin, int64_t n) const override;
  std::vector<double> bound(std::span<const float> expected) const override;

 private:
  void add_row(int32_t id, int32_t num_top, std::vector<float> logits) {
    ids_.push_back(id);
    num_top_.push_back(num_top);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  std::vector<float> random_row(float spread) { return random_floats(seed_++, vocab_, spread); }

  int64_t vocab_;
  int64_t padding_;
  uint64_t seed_ = 81;
  std::vector<float> logits_;
  std::vector<int32_t> ids_, num_top_;
};

TokenLogprobsCase::TokenLogprobsCase(int64_t vocab, int64_t padding)
    : vocab_(vocab), padding_(padding) {
  const auto last = static_cast<int32_t>(vocab - 1);
  const auto with = [&](size_t id, float value) {
    std::vector<float> row = random_row(3.0F);
    row[id] = value;
    return row;
  };
  add_row(0, 0, random_row(3.0F));
  add_row(last, kMaxTop, random_row(3.0F));
  add_row(last / 2, 5, random_row(40.0F));
  add_row(-1, 3, random_row(3.0F));
  add_row(0, -1, random_row(3.0F));
  add_row(last, 7, std::vector<float>(static_cast<size_t>(vocab), -2.5F));
  std::vector<float> ties = random_row(2.0F);
  for (float& x : ties) x = std::round(x);
  add_row(last / 3, kMaxTop, ties);
  std::vector<float> rising = random_row(1.0F);
  std::sort(rising.begin(), rising.end());
  add_row(0, kMaxTop, rising);
  add_row(0, 2, with(0, 200.0F));
  add_row(0, kMaxTop, with(0, vocab > 1 ? -kInfinity : 0.0F));
  // Half of the ids cannot be: fewer than num_top have a probability.
  std::vector<float> few = random_row(3.0F);
  for (size_t i = 1; i < few.size(); ++i) few[i] = i % 2 == 0 && i < 9 ? few[i] : -kInfinity;
  add_row(0, kMaxTop, few);
  // Nothing to choose.
  add_row(0, kMaxTop, with(static_cast<size_t>(last), kNaN));
  add_row(0, kMaxTop, with(static_cast<size_t>(last / 2), kInfinity));
  add_row(0, kMaxTop, std::vector<float>(static_cast<size_t>(vocab), -kInfinity));
}

std::vector<float> TokenLogprobsCase::run(ops::Backend& backend, int64_t begin, int64_t n) const {
  const auto rows = padded_rows(rows_of(logits_, vocab_, begin, n), vocab_, padding_);
  const DeviceTensor logits = device_floats(backend, {n, vocab_ + padding_}, rows);
  const DeviceTensor ids = device_ints(backend, {n}, rows_of(ids_, 1, begin, n));
  const DeviceTensor num_top = device_ints(backend, {n}, rows_of(num_top_, 1, begin, n));
  const DeviceTensor chosen(backend, tensor::DType::kF32, {n});
  const DeviceTensor top_ids(backend, tensor::DType::kI32, {n, kMaxTop});
  const DeviceTensor top_logprobs(backend, tensor::DType::kF32, {n, kMaxTop});
  backend.token_logprobs({.logits = narrowed(logits.view(), vocab_),
                          .ids = ids.view(),
                          .num_top = num_top.view(),
                          .chosen_logprob = chosen.view(),
                          .top_ids = top_ids.view(),
                          .top_logprobs = top_logprobs.view()});
  EXPECT_EQ(compare_bits(logits.floats(), rows), "") << "the logits were changed";
  std::vector<float> id_values;
  for (const int32_t id : top_ids.ints()) id_values.push_back(static_cast<float>(id));
  std::vector<float> out = joined_rows({chosen.floats(), id_values, top_logprobs.floats()}, n);
  for (float& value : out) {
    if (std::isnan(value)) value = kNoLogprob;
    if (value == -kInfinity) value = kImpossible;
  }
  return out;
}

// Both compute in double with an error far below 1e-11 and round once, perhaps to two neighbours.
// Ids are exact.
std::vector<double> TokenLogprobsCase::bound(std::span<const float> expected) const {
  constexpr size_t kWidth = 1 + 2 * kMaxTop;
  std::vector<double> bounds;
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t column = i % kWidth;
    const bool is_id = column >= 1 && column <= kMaxTop;
    const bool is_mark = expected[i] == kNoLogprob || expected[i] == kImpossible;
    const double y = std::fabs(static_cast<double>(expected[i]));
    bounds.push_back(is_id || is_mark ? 0.0 : 2.0 * kHalfUlp * y + 1e-11);
  }
  return bounds;
}

}  // namespace

void add_logprobs_cases(OpCases& cases) {
  for (const int64_t vocab : {1, 7, 64, 301, 5003}) {
    cases.push_back(std::make_unique<TokenLogprobsCase>(vocab, vocab == 301 ? 3 : 0));
  }
}

}  // namespace markbase::testing
