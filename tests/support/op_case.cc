#include "support/op_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace markbase::testing {
namespace {

double share_of(float got, float expected, double bound) {
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected)) return 0.0;
  const double error = std::fabs(static_cast<double>(got) - static_cast<double>(expected));
  if (error == 0.0) return 0.0;  // zeros of two signs
  const bool finite = error <= std::numeric_limits<double>::max();
  return finite && bound > 0.0 ? error / bound : std::numeric_limits<double>::infinity();
}

}  // namespace

OpCases all_op_cases() {
  OpCases cases;
  add_row_cases(cases);
  add_rope_cases(cases);
  add_linear_cases(cases);
  add_attention_cases(cases);
  add_expert_cases(cases);
  add_logprobs_cases(cases);
  return cases;
}

double worst_share(std::span<const float> got, std::span<const float> expected,
                   std::span<const double> bound) {
  double worst = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, share_of(got[i], expected[i], bound[i]));
  }
  return worst;
}

std::string compare(std::span<const float> got, std::span<const float> expected,
                    std::span<const double> bound) {
  if (got.size() != expected.size() || bound.size() != expected.size()) {
    return fmt::format("{} outputs and {} bounds, expected {}", got.size(), bound.size(),
                       expected.size());
  }
  size_t worst = 0;
  double share = 0.0;
  int64_t num_beyond = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double s = share_of(got[i], expected[i], bound[i]);
    num_beyond += s > 1.0 ? 1 : 0;
    if (s > share) {
      share = s;
      worst = i;
    }
  }
  if (num_beyond == 0) return "";
  return fmt::format(
      "{} of {} beyond the bound; worst element {}: got {:.9g}, expected {:.9g}, "
      "bound {:.3g}, share {:.3g}",
      num_beyond, got.size(), worst, got[worst], expected[worst], bound[worst], share);
}

std::string compare_bits(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) {
    return fmt::format("{} outputs, expected {}", got.size(), expected.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    return fmt::format("element {}: got {:.9g} ({:#010x}), expected {:.9g} ({:#010x})", i, got[i],
                       std::bit_cast<uint32_t>(got[i]), expected[i],
                       std::bit_cast<uint32_t>(expected[i]));
  }
  return "";
}

}  // namespace markbase::testing
