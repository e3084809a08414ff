#include "ops/token_logprobs.h"

#include "ops/arg_checks.h"

namespace markbase::ops {

void check(const TokenLogprobsArgs& args) {
  using tensor::DType;
  MB_CHECK_MSG(is_f32_rows(args.logits) && args.logits.dim(1) > 0,
               "token_logprobs logits must be [rows, vocab] f32 with a vocabulary");
  const int64_t rows = args.logits.dim(0);
  MB_CHECK_MSG(is_vector(args.ids, DType::kI32, rows), "token_logprobs ids must be [rows] i32");
  MB_CHECK_MSG(is_vector(args.num_top, DType::kI32, rows),
               "token_logprobs num_top must be [rows] i32");
  MB_CHECK_MSG(is_vector(args.chosen_logprob, DType::kF32, rows),
               "token_logprobs chosen_logprob must be [rows] f32");
  MB_CHECK_MSG(is_type(args.top_ids, DType::kI32, 2) && args.top_ids.dim(0) == rows &&
                   args.top_ids.contiguous(),
               "token_logprobs top_ids must be [rows, max_top] i32");
  MB_CHECK_MSG(is_type(args.top_logprobs, DType::kF32, 2) &&
                   same_shape(args.top_logprobs, args.top_ids) && args.top_logprobs.contiguous(),
               "token_logprobs top_logprobs must be [rows, max_top] f32");
  MB_CHECK_MSG(same_device(args.logits, args.ids) && same_device(args.logits, args.num_top) &&
                   same_device(args.logits, args.chosen_logprob) &&
                   same_device(args.logits, args.top_ids) &&
                   same_device(args.logits, args.top_logprobs),
               "token_logprobs tensors must be on one device");
}

}  // namespace markbase::ops
