// Every op of every backend against the reference, and the promises that need no reference: rows
// do not depend on their neighbours, nor bits on threads or on the instruction set, and a fused op
// gives the bits of its composition.
#include <gtest/gtest.h>

#include "support/op_case.h"
#include "support/subject.h"

namespace markbase::testing {
namespace {

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<float> run_all(const Subject& subject, const OpCase& op) {
    return op.run(*subject.backend, 0, op.num_rows());
  }
};

TEST_P(Parity, MatchesReference) {
  const Subject reference = make_subject("ref", 2);
  const Subject subject = make_subject(GetParam(), 2);
  double worst = 0.0;
  std::string worst_name = "none";
  for (const auto& op : all_op_cases()) {
    const std::vector<float> expected = run_all(reference, *op);
    const std::vector<float> got = run_all(subject, *op);
    const std::vector<double> bound = op->bound(expected);
    EXPECT_EQ(compare(got, expected, bound), "") << GetParam() << ": " << op->name();
    const double share = worst_share(got, expected, bound);
    if (share > worst) {
      worst = share;
      worst_name = op->name();
    }
  }
  RecordProperty("worst_share_of_bound", std::to_string(worst));
  RecordProperty("worst_case", worst_name);
}

TEST_P(Parity, RowsAloneGiveTheBitsOfTheBatch) {
  const Subject subject = make_subject(GetParam(), 2);
  for (const auto& op : all_op_cases()) {
    const std::vector<float> batch = run_all(subject, *op);
    const auto width = batch.size() / static_cast<size_t>(op->num_rows());
    // Single rows, and pieces whose lengths fit no tile.
    int64_t n = 1;
    for (int64_t begin = 0; begin < op->num_rows(); begin += n, n = n % 3 + 1) {
      n = std::min(n, op->num_rows() - begin);
      const std::vector<float> piece = op->run(*subject.backend, begin, n);
      const auto expected = std::span(batch).subspan(static_cast<size_t>(begin) * width,
                                                     static_cast<size_t>(n) * width);
      EXPECT_EQ(compare_bits(piece, expected), "")
          << GetParam() << ": " << op->name() << " rows from " << begin;
    }
  }
}

TEST_P(Parity, FusedGivesTheBitsOfItsComposition) {
  const Subject subject = make_subject(GetParam(), 2);
  for (const auto& op : all_op_cases()) {
    if (!op->fused()) continue;
    for (const int64_t n : {int64_t{1}, op->num_rows()}) {
      const std::vector<float> fused = op->run(*subject.backend, 0, n);
      const std::vector<float> composed = op->run_composed(*subject.backend, 0, n);
      EXPECT_EQ(compare_bits(fused, composed), "") << GetParam() << ": " << op->name();
    }
  }
}

TEST_P(Parity, AnyThreadCountGivesTheSameBits) {
  const Subject one = make_subject(GetParam(), 1);
  for (const int num_threads : {2, 3, 7}) {
    const Subject more = make_subject(GetParam(), num_threads);
    for (const auto& op : all_op_cases()) {
      EXPECT_EQ(compare_bits(run_all(more, *op), run_all(one, *op)), "")
          << GetParam() << ": " << op->name() << " with " << num_threads << " threads";
    }
  }
}

TEST_P(Parity, InstructionSetsGiveTheSameBits) {
  if (!GetParam().starts_with("cpu_")) GTEST_SKIP() << "one level only";
  const Subject generic = make_subject("cpu_generic", 2);
  const Subject subject = make_subject(GetParam(), 2);
  for (const auto& op : all_op_cases()) {
    EXPECT_EQ(compare_bits(run_all(subject, *op), run_all(generic, *op)), "")
        << GetParam() << ": " << op->name();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Parity, ::testing::ValuesIn(subject_names()),
                         [](const auto& param_info) { return param_info.param; });

// --- the harness itself ---

TEST(Compare, NamesTheWorstElementAndItsShare) {
  const std::vector<float> expected = {1.0F, 2.0F, 3.0F};
  const std::vector<float> got = {1.0F, 2.5F, 3.25F};
  EXPECT_EQ(compare(got, expected, std::vector<double>{0.0, 0.5, 0.25}), "");
  EXPECT_EQ(worst_share(got, expected, std::vector<double>{0.0, 1.0, 0.5}), 0.5);
  const std::string message = compare(got, expected, std::vector<double>{0.0, 0.25, 0.25});
  EXPECT_NE(message.find("1 of 3 beyond the bound; worst element 1: got 2.5, expected 2"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("share 2"), std::string::npos) << message;
}

TEST(Compare, NothingHidesBehindNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> bound = {1e30};
  EXPECT_NE(compare(std::vector<float>{nan}, std::vector<float>{1.0F}, bound), "");
  EXPECT_NE(compare(std::vector<float>{1.0F}, std::vector<float>{nan}, bound), "");
  EXPECT_NE(compare(std::vector<float>{1.0F, 2.0F}, std::vector<float>{1.0F}, bound), "");
  EXPECT_NE(compare_bits(std::vector<float>{0.0F}, std::vector<float>{-0.0F}), "");
  EXPECT_EQ(compare_bits(std::vector<float>{nan}, std::vector<float>{nan}), "");
}

}  // namespace
}  // namespace markbase::testing
