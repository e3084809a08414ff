#include "backends/cpu/kernels/linear_vec256-inl.h"
// The vector words come first.
#include "backends/cpu/kernels/linear-inl.h"

namespace markbase::backends::cpu {

const LinearKernels& linear_kernels_avxvnni() {
  static constexpr LinearKernels kKernels = {quantise_row, grouped, floats, false, 0};
  return kKernels;
}

}  // namespace markbase::backends::cpu
