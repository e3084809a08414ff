// Helpers of the tests of the CPU's vector ops: reproducible noise, comparison by bits, the levels
// that can run here.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/vector_ops.h"
#include "tensor/tensor.h"

namespace markbase::test {

using backends::CpuIsa;
using backends::cpu::VectorKernels;
using tensor::DType;
using tensor::make_view;
using tensor::TensorView;

inline constexpr double kEpsilon = 0x1p-24;  // half a unit of float32

// A linear congruential generator; uniform in [-1, 1), about normal as a sum of four.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  double uniform() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) * 0x1p-52 - 1.0;
  }
  float normal() {
    return static_cast<float>((uniform() + uniform() + uniform() + uniform()) * 0.866);
  }
  std::vector<float> normals(int64_t n, float scale = 1.0F) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = scale * normal();
    return values;
  }

 private:
  uint64_t state_;
};

// One level for each set of vector kernels that this machine can run.
inline std::vector<CpuIsa> levels_here() {
  std::vector<CpuIsa> levels;
  const VectorKernels* previous = nullptr;
  for (const CpuIsa isa : backends::all_cpu_isas()) {
    if (!backends::cpu_supports(isa)) continue;
    const VectorKernels* kernels = &backends::cpu::vector_kernels(isa);
    if (kernels != previous) levels.push_back(isa);
    previous = kernels;
  }
  return levels;
}

inline const VectorKernels& generic() { return backends::cpu::vector_kernels(CpuIsa::kGeneric); }

// Equal bits, any NaN equal to any other.
inline ::testing::AssertionResult same_bits(const std::vector<float>& a,
                                            const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline TensorView view(std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return make_view(values.data(), DType::kF32, shape);
}
inline TensorView view(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  return make_view(values.data(), DType::kI32, shape);
}

}  // namespace markbase::test
