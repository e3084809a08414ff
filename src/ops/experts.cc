#include "ops/experts.h"

#include "ops/arg_checks.h"

namespace markbase::ops {
namespace {

bool is_matrix(const tensor::TensorView& view, tensor::DType dtype) {
  return is_type(view, dtype, 2) && view.contiguous();
}

bool is_weight(const std::unique_ptr<PackedWeight>& weight, int64_t rows, int64_t cols) {
  return weight != nullptr && !weight->is_lookup_only() && weight->rows() == rows &&
         weight->cols() == cols;
}

}  // namespace

void check(const RouteArgs& args) {
  MB_CHECK_MSG(is_matrix(args.scores, tensor::DType::kF32), "route scores must be [tokens, E] f32");
  MB_CHECK_MSG(is_matrix(args.ids, tensor::DType::kI32), "route ids must be [tokens, K] i32");
  MB_CHECK_MSG(is_matrix(args.weights, tensor::DType::kF32),
               "route weights must be [tokens, K] f32");
  MB_CHECK_MSG(same_shape(args.ids, args.weights), "route ids and weights must have one shape");
  MB_CHECK_MSG(args.ids.dim(0) == args.scores.dim(0), "route needs ids for every row of scores");
  MB_CHECK_MSG(args.ids.dim(1) >= 1 && args.ids.dim(1) <= args.scores.dim(1) &&
                   args.ids.dim(1) <= kMostExpertsPerToken,
               "route takes 1 to E experts for a row");
  MB_CHECK_MSG(is_vector(args.expert_scale, tensor::DType::kF32, args.scores.dim(1)),
               "route expert_scale must be [E] f32");
  MB_CHECK_MSG(same_device(args.scores, args.ids) && same_device(args.scores, args.weights) &&
                   same_device(args.scores, args.expert_scale),
               "route tensors must be on one device");
}

void check(const ExpertsArgs& args) {
  MB_CHECK_MSG(is_f32_rows(args.x) && is_f32_rows(args.y), "experts x and y must be [tokens, H]");
  MB_CHECK_MSG(same_shape(args.x, args.y), "experts x and y must have one shape");
  MB_CHECK_MSG(args.x.data != args.y.data || args.x.dim(0) == 0, "experts y may not be x");
  MB_CHECK_MSG(is_matrix(args.ids, tensor::DType::kI32) && args.ids.dim(0) == args.x.dim(0),
               "experts ids must be [tokens, K] i32");
  MB_CHECK_MSG(is_matrix(args.weights, tensor::DType::kF32), "experts weights must be [tokens, K]");
  MB_CHECK_MSG(same_shape(args.ids, args.weights), "experts ids and weights must have one shape");
  MB_CHECK_MSG(same_device(args.x, args.y) && same_device(args.x, args.ids) &&
                   same_device(args.x, args.weights),
               "experts tensors must be on one device");
  MB_CHECK_MSG(!args.gate.empty() && args.gate.size() == args.up.size() &&
                   args.gate.size() == args.down.size(),
               "experts needs gate, up and down of every expert");
  MB_CHECK_MSG(args.gate[0] != nullptr, "experts needs weights");
  check_expert(args, 0);
}

void check_expert(const ExpertsArgs& args, int32_t id) {
  MB_CHECK_MSG(id >= 0 && static_cast<size_t>(id) < args.gate.size(), "experts id out of range");
  const auto e = static_cast<size_t>(id);
  const int64_t inputs = args.x.dim(1);
  const int64_t width = args.gate[0]->rows();
  MB_CHECK_MSG(is_weight(args.gate[e], width, inputs) && is_weight(args.up[e], width, inputs) &&
                   is_weight(args.down[e], inputs, width),
               "experts gate and up must be [M, H], down [H, M], alike for all experts");
}

}  // namespace markbase::ops
