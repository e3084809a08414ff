#include "ops/elementwise.h"

#include "ops/arg_checks.h"

namespace markbase::ops {

void check(const AddArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x) && is_f32_rows(args.y), "add x and y must be [rows, width] f32");
  MB_CHECK_MSG(same_shape(args.x, args.y), "add x and y must have one shape");
  MB_CHECK_MSG(same_device(args.x, args.y), "add x and y must be on one device");
}

void check(const GeluMulArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.gate) && is_f32_rows(args.up) && is_f32_rows(args.y),
               "gelu_mul gate, up and y must be [rows, width] f32");
  MB_CHECK_MSG(same_shape(args.gate, args.up) && same_shape(args.gate, args.y),
               "gelu_mul gate, up and y must have one shape");
  MB_CHECK_MSG(same_device(args.gate, args.up) && same_device(args.gate, args.y),
               "gelu_mul gate, up and y must be on one device");
}

void check(const SoftCapArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x), "soft_cap x must be [rows, width] f32");
  MB_CHECK_MSG(args.cap > 0.0F, "soft_cap cap must be positive");
}

void check(const ScaleArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x), "scale x must be [rows, width] f32");
}

void check(const GatherRowsArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x) && is_f32_rows(args.y),
               "gather_rows x and y must be [rows, width] f32");
  MB_CHECK_MSG(args.x.dim(1) == args.y.dim(1), "gather_rows x and y must have one width");
  MB_CHECK_MSG(is_vector(args.rows, tensor::DType::kI32, args.y.dim(0)),
               "gather_rows rows must be [rows of y] i32");
  MB_CHECK_MSG(same_device(args.x, args.y) && same_device(args.x, args.rows),
               "gather_rows x, rows and y must be on one device");
  MB_CHECK_MSG(args.x.data != args.y.data || args.y.dim(0) == 0, "gather_rows y may not be x");
}

}  // namespace markbase::ops
