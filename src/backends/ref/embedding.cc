#include "backends/ref/ref_backend_impl.h"
#include "ops/mapped_table.h"

namespace markbase::backends {
namespace {

void look_up(const ops::PackedWeight& table, int32_t id, float scale, std::span<float> y) {
  if (table.is_lookup_only()) {
    return static_cast<const ops::MappedTable&>(table).look_up(id, scale, y);
  }
  const float* row = static_cast<const RefWeight&>(table).row(id);
  for (size_t j = 0; j < y.size(); ++j) y[j] = row[j] * scale;
}

}  // namespace

void RefBackend::embedding(const ops::EmbeddingArgs& args) {
  check(args);
  const int32_t* ids = args.ids.as<int32_t>();
  for (int64_t t = 0; t < args.y.dim(0); ++t) {
    MB_CHECK(ids[t] >= 0 && ids[t] < args.table->rows());
    look_up(*args.table, ids[t], args.scale, {args.y.row(t), static_cast<size_t>(args.y.dim(1))});
  }
}

}  // namespace markbase::backends
