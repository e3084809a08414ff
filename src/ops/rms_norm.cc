#include "ops/rms_norm.h"

#include "ops/arg_checks.h"
#include "ops/backend.h"

namespace markbase::ops {
namespace {

void check_weight(const tensor::TensorView& weight, const tensor::TensorView& x) {
  if (weight.data == nullptr) return;
  MB_CHECK_MSG(is_vector(weight, tensor::DType::kF32, x.dim(1)), "norm weight must be [width] f32");
  MB_CHECK_MSG(same_device(weight, x), "norm weight must be on the device of x");
}

}  // namespace

void check(const RmsNormArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x), "rms_norm x must be [rows, width] f32");
  MB_CHECK_MSG(is_f32_rows(args.y), "rms_norm y must be [rows, width] f32");
  MB_CHECK_MSG(same_shape(args.x, args.y), "rms_norm x and y must have one shape");
  MB_CHECK_MSG(same_device(args.x, args.y), "rms_norm x and y must be on one device");
  MB_CHECK_MSG(args.x.dim(1) > 0, "rms_norm needs a width");
  MB_CHECK_MSG(args.eps >= 0.0F, "rms_norm eps must not be negative");
  check_weight(args.weight, args.x);
}

void check(const AddRmsNormArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x), "add_rms_norm x must be [rows, width] f32");
  MB_CHECK_MSG(is_f32_rows(args.residual), "add_rms_norm residual must be [rows, width] f32");
  MB_CHECK_MSG(same_shape(args.x, args.residual),
               "add_rms_norm x and residual must have one shape");
  MB_CHECK_MSG(same_device(args.x, args.residual), "add_rms_norm x and residual on one device");
  MB_CHECK_MSG(args.x.dim(1) > 0, "add_rms_norm needs a width");
  MB_CHECK_MSG(args.x.data != args.residual.data || args.x.dim(0) == 0,
               "add_rms_norm x may not be residual");
  MB_CHECK_MSG(args.eps >= 0.0F, "add_rms_norm eps must not be negative");
  check_weight(args.post_weight, args.x);
  check_weight(args.next_weight, args.x);
  if (args.y.data == nullptr) {
    MB_CHECK_MSG(args.next_weight.data == nullptr, "add_rms_norm next_weight needs a y");
    return;
  }
  MB_CHECK_MSG(is_f32_rows(args.y), "add_rms_norm y must be [rows, width] f32");
  MB_CHECK_MSG(same_shape(args.x, args.y), "add_rms_norm x and y must have one shape");
  MB_CHECK_MSG(same_device(args.x, args.y), "add_rms_norm x and y must be on one device");
  MB_CHECK_MSG(args.y.data != args.residual.data, "add_rms_norm y may not be residual");
}

void compose(Backend& backend, const AddRmsNormArgs& args) {
  check(args);
  const bool has_next = args.y.data != nullptr;
  const tensor::TensorView& normed = has_next ? args.y : args.x;
  backend.rms_norm({.x = args.x, .weight = args.post_weight, .eps = args.eps, .y = normed});
  backend.add({.x = normed, .y = args.residual});
  if (args.scale != 1.0F) backend.scale({.x = args.residual, .factor = args.scale});
  if (!has_next) return;
  backend.rms_norm({.x = args.residual, .weight = args.next_weight, .eps = args.eps, .y = args.y});
}

}  // namespace markbase::ops
