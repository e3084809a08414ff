#include "ops/linear.h"

#include "ops/arg_checks.h"
#include "ops/backend.h"

namespace markbase::ops {
namespace {

void check_target(const LinearTarget& target, const tensor::TensorView& x) {
  MB_CHECK_MSG(target.weight != nullptr, "linear needs a weight");
  MB_CHECK_MSG(!target.weight->is_lookup_only(), "linear cannot multiply by a mapped table");
  MB_CHECK_MSG(target.weight->cols() == x.dim(1), "linear weight must have as many columns as x");
  MB_CHECK_MSG(is_f32_rows(target.y), "linear y must be [tokens, outputs] f32");
  MB_CHECK_MSG(target.y.dim(0) == x.dim(0), "linear x and y must have as many rows");
  MB_CHECK_MSG(target.y.dim(1) == target.weight->rows(), "linear y must be as wide as weight rows");
  MB_CHECK_MSG(same_device(target.y, x), "linear x and y must be on one device");
  MB_CHECK_MSG(target.y.data != x.data || x.dim(0) == 0, "linear y may not be x");
}

}  // namespace

void check(const LinearArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x), "linear x must be [tokens, inputs] f32");
  for (const LinearTarget& target : args.targets) check_target(target, args.x);
}

void check(const GatedLinearArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.gate) && is_f32_rows(args.up),
               "gated_linear gate and up must be [tokens, inputs] f32");
  MB_CHECK_MSG(same_shape(args.gate, args.up), "gated_linear gate and up must have one shape");
  MB_CHECK_MSG(same_device(args.gate, args.up), "gated_linear gate and up must be on one device");
  check_target(args.target, args.gate);
}

void compose(Backend& backend, const GatedLinearArgs& args) {
  check(args);
  backend.gelu_mul({.gate = args.gate, .up = args.up, .y = args.gate});
  backend.linear({.x = args.gate, .targets = std::span(&args.target, 1)});
}

}  // namespace markbase::ops
