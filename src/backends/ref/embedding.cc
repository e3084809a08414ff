#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::embedding(const ops::EmbeddingArgs& args) {
  check(args);
  const auto& table = static_cast<const RefWeight&>(*args.table);
  const int32_t* ids = args.ids.as<int32_t>();
  for (int64_t t = 0; t < args.y.dim(0); ++t) {
    MB_CHECK(ids[t] >= 0 && ids[t] < table.rows());
    const float* row = table.row(ids[t]);
    float* y = args.y.row(t);
    for (int64_t j = 0; j < table.cols(); ++j) y[j] = row[j] * args.scale;
  }
}

}  // namespace markbase::backends
