#include "backends/cpu/kernels/linear_vec512-inl.h"
// The vector words come first.
#include "backends/cpu/kernels/linear-inl.h"
#include "backends/cpu/kernels/linear_tiles-inl.h"

namespace markbase::backends::cpu {
namespace {

// Fewer rows of x leave most of a tile empty. At four only the formats gain whose groups fill at
// least half a tile's depth and whose codes are cheaper to unpack once than twice.
constexpr int64_t kTilesFromTokens = 4;

bool gains_from_tiles(const GroupedArgs& args) {
  const GroupedFormat& f = *args.format;
  return args.num_tokens > kTilesFromTokens || (f.bits == 4 && f.group_size >= 32);
}

void grouped_amx(const GroupedArgs& args) {
  if (args.x->tiles == nullptr || !gains_from_tiles(args)) return grouped(args);
  tile_product(args);
}

}  // namespace

const LinearKernels& linear_kernels_amx() {
  static constexpr LinearKernels kKernels = {quantise_row, grouped_amx, floats, true,
                                             kTilesFromTokens};
  return kKernels;
}

}  // namespace markbase::backends::cpu
