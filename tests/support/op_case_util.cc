#include "support/op_case_util.h"

#include <cmath>
#include <numbers>

namespace markbase::testing {

double exact_gelu_tanh(double z) {
  return 0.5 * z *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

std::vector<double> exact_rms_norm(std::span<const double> x, std::span<const float> weight,
                                   double eps) {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(x[i] * factor * (weight.empty() ? 1.0 : static_cast<double>(weight[i])));
  }
  return y;
}

}  // namespace markbase::testing
