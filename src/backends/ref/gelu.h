// The activation of the gated products. Private to this room.
#pragma once

#include <cmath>
#include <numbers>

namespace markbase::backends {

inline double gelu_tanh(double z) {
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z);
  return 0.5 * z * (1.0 + std::tanh(inner));
}

}  // namespace markbase::backends
