// Log probabilities against torch.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "support/golden.h"
#include "support/op_case.h"
#include "support/subject.h"

namespace markbase::testing {
namespace {

class LogprobsOf : public ::testing::TestWithParam<std::string> {};

// Of float32 logits torch's log_softmax in double is exact here: what remains is one rounding.
void expect_logprob(float got, double expected, const std::string& what) {
  EXPECT_NEAR(got, expected, kHalfUlp * std::fabs(expected) + 1e-12) << what;
}

TEST_P(LogprobsOf, Rows) {
  const Subject subject = make_subject(GetParam(), 2);
  const auto golden = base::parse_json(read_file(golden_path("logprobs.json")), "logprobs.json");
  ASSERT_TRUE(golden.ok());
  ASSERT_EQ((*golden)["rows"].size(), 8U);
  for (const base::Json& row : (*golden)["rows"]) {
    const auto name = row["name"].get<std::string>();
    const auto logits = row["logits"].get<std::vector<float>>();
    const auto logprobs = row["logprobs"].get<std::vector<double>>();
    const auto likeliest = row["likeliest"].get<std::vector<int32_t>>();
    const auto vocab = static_cast<int64_t>(logits.size());
    // Every id is chosen once: as many rows of the same logits.
    std::vector<float> repeated;
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocab; ++id) {
      repeated.insert(repeated.end(), logits.begin(), logits.end());
      ids.push_back(id);
    }
    constexpr int64_t kMaxTop = 20;
    const std::vector<int32_t> num_top(ids.size(), static_cast<int32_t>(kMaxTop));
    const DeviceTensor x = device_floats(*subject.backend, {vocab, vocab}, repeated);
    const DeviceTensor chosen_ids = device_ints(*subject.backend, {vocab}, ids);
    const DeviceTensor wanted = device_ints(*subject.backend, {vocab}, num_top);
    const DeviceTensor chosen(*subject.backend, tensor::DType::kF32, {vocab});
    const DeviceTensor top_ids(*subject.backend, tensor::DType::kI32, {vocab, kMaxTop});
    const DeviceTensor top_logprobs(*subject.backend, tensor::DType::kF32, {vocab, kMaxTop});
    subject.backend->token_logprobs({.logits = x.view(),
                                     .ids = chosen_ids.view(),
                                     .num_top = wanted.view(),
                                     .chosen_logprob = chosen.view(),
                                     .top_ids = top_ids.view(),
                                     .top_logprobs = top_logprobs.view()});
    const std::vector<float> got = chosen.floats();
    for (size_t id = 0; id < got.size(); ++id) {
      expect_logprob(got[id], logprobs[id], name + " id " + std::to_string(id));
    }
    const std::vector<int32_t> got_ids = top_ids.ints();
    const std::vector<float> got_logprobs = top_logprobs.floats();
    for (size_t i = 0; i < std::min<size_t>(kMaxTop, likeliest.size()); ++i) {
      EXPECT_EQ(got_ids[i], likeliest[i]) << name << " rank " << i;
      expect_logprob(got_logprobs[i], logprobs[static_cast<size_t>(likeliest[i])],
                     name + " rank " + std::to_string(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, LogprobsOf, ::testing::ValuesIn(subject_names()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace markbase::testing
