#include "ops/rope.h"

#include <cmath>

#include "ops/arg_checks.h"
#include "ops/backend.h"

namespace markbase::ops {
namespace {

void check_rope_views(const tensor::TensorView& x, const tensor::TensorView& table_rows,
                      const tensor::TensorView& table) {
  MB_CHECK_MSG(is_f32_heads(x), "rope x must be [tokens, heads, head_dim] f32");
  MB_CHECK_MSG(x.dim(2) > 0 && x.dim(2) % 2 == 0, "rope head_dim must be even");
  MB_CHECK_MSG(is_vector(table_rows, tensor::DType::kI32, x.dim(0)),
               "rope table_rows must be [tokens] i32");
  MB_CHECK_MSG(is_f32_rows(table) && table.dim(1) <= x.dim(2) && table.dim(1) % 2 == 0,
               "rope table must be [rows, an even width up to head_dim] f32");
  MB_CHECK_MSG(same_device(x, table_rows) && same_device(x, table),
               "rope x, table_rows and table must be on one device");
}

}  // namespace

void check(const RopeTableArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.table) && args.table.dim(1) % 2 == 0,
               "rope_table table must be [rows, an even width] f32");
  MB_CHECK_MSG(is_vector(args.positions, tensor::DType::kI32, args.table.dim(0)),
               "rope_table positions must be [rows] i32");
  MB_CHECK_MSG(is_vector(args.inv_freq, tensor::DType::kF32, args.table.dim(1) / 2),
               "rope_table inv_freq must be half a row of the table, f32");
  MB_CHECK_MSG(same_device(args.table, args.positions) && same_device(args.table, args.inv_freq),
               "rope_table positions, inv_freq and table must be on one device");
}

void fill_rope_row(std::span<const float> inv_freq, int32_t position, float* row) {
  const size_t pairs = inv_freq.size();
  for (size_t k = 0; k < pairs; ++k) {
    const float angle = static_cast<float>(position) * inv_freq[k];
    row[k] = static_cast<float>(std::cos(static_cast<double>(angle)));
    row[pairs + k] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

void check(const RopeArgs& args) { check_rope_views(args.x, args.table_rows, args.table); }

void check(const NormRopeArgs& args) {
  check_rope_views(args.x, args.table_rows, args.table);
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
  backend.rope({.x = args.x, .table_rows = args.table_rows, .table = args.table});
}

}  // namespace markbase::ops
