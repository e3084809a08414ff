#include "ops/embedding.h"

#include "ops/arg_checks.h"

namespace markbase::ops {

void check(const EmbeddingArgs& args) {
  MB_CHECK_MSG(args.table != nullptr, "embedding needs a table");
  MB_CHECK_MSG(is_f32_rows(args.y), "embedding y must be [tokens, hidden] f32");
  MB_CHECK_MSG(args.y.dim(1) == args.table->cols(), "embedding y must be as wide as the table");
  MB_CHECK_MSG(is_vector(args.ids, tensor::DType::kI32, args.y.dim(0)),
               "embedding ids must be [tokens] i32");
  MB_CHECK_MSG(same_device(args.ids, args.y), "embedding ids and y must be on one device");
}

}  // namespace markbase::ops
