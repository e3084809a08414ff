#include "backends/cpu/kernels/linear_vec512-inl.h"
// The vector words come first.
#include "backends/cpu/kernels/linear-inl.h"
#include "backends/cpu/kernels/linear_tiles-inl.h"

namespace markbase::backends::cpu {
namespace {

// Fewer rows of x leave most of a tile empty.
constexpr int64_t kTilesFromTokens = 8;

void grouped_amx(const GroupedArgs& args) {
  if (args.x->tiles == nullptr) return grouped(args);
  tile_product(args);
}

}  // namespace

const LinearKernels& linear_kernels_amx() {
  static constexpr LinearKernels kKernels = {quantise_row, grouped_amx, floats, true,
                                             kTilesFromTokens};
  return kKernels;
}

}  // namespace markbase::backends::cpu
