#include "ops/rope.h"

#include <cmath>

#include "ops/arg_checks.h"
#include "ops/backend.h"

namespace markbase::ops {
namespace {

void check_rope_views(const tensor::TensorView& x, const tensor::TensorView& positions,
                      const tensor::TensorView& table) {
  MB_CHECK_MSG(is_f32_heads(x), "rope x must be [tokens, heads, head_dim] f32");
  MB_CHECK_MSG(x.dim(2) > 0 && x.dim(2) % 2 == 0, "rope head_dim must be even");
  MB_CHECK_MSG(is_vector(positions, tensor::DType::kI32, x.dim(0)),
               "rope positions must be [tokens] i32");
  MB_CHECK_MSG(is_f32_rows(table) && table.dim(1) == x.dim(2),
               "rope table must be [positions, head_dim] f32");
  MB_CHECK_MSG(same_device(x, positions) && same_device(x, table),
               "rope x, positions and table must be on one device");
}

}  // namespace

void check(const RopeArgs& args) { check_rope_views(args.x, args.positions, args.table); }

void fill_rope_table(std::span<const float> inv_freq, int64_t begin, int64_t end, float* table) {
  const size_t half = inv_freq.size();
  for (int64_t p = begin; p < end; ++p) {
    float* row = table + static_cast<size_t>(p) * 2 * half;
    for (size_t k = 0; k < half; ++k) {
      const float angle = static_cast<float>(p) * inv_freq[k];
      row[k] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + k] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void check(const NormRopeArgs& args) {
  check_rope_views(args.x, args.positions, args.table);
  MB_CHECK_MSG(args.eps >= 0.0F, "norm_rope eps must not be negative");
  if (args.weight.data == nullptr) return;
  MB_CHECK_MSG(is_vector(args.weight, tensor::DType::kF32, args.x.dim(2)),
               "norm_rope weight must be [head_dim] f32");
  MB_CHECK_MSG(same_device(args.weight, args.x), "norm_rope weight must be on the device of x");
}

void compose(Backend& backend, const NormRopeArgs& args) {
  check(args);
  // One call a head: tokens may be strided, so heads and tokens do not fold into one axis.
  for (int64_t head = 0; head < args.x.dim(1); ++head) {
    tensor::TensorView rows = args.x;
    rows.rank = 2;
    rows.shape = {args.x.dim(0), args.x.dim(2)};
    rows.stride = {args.x.stride[0], 1};
    rows.data = args.x.f32() + head * args.x.dim(2);
    backend.rms_norm({.x = rows, .weight = args.weight, .eps = args.eps, .y = rows});
  }
  backend.rope({.x = args.x, .positions = args.positions, .table = args.table});
}

}  // namespace markbase::ops
