#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::rope_table(const ops::RopeTableArgs& args) {
  check(args);
  const int32_t* positions = args.positions.as<int32_t>();
  const std::span<const float> inv_freq(args.inv_freq.f32(),
                                        static_cast<size_t>(args.inv_freq.dim(0)));
  pool_.run(args.table.dim(0), [&](int64_t t, int) {
    MB_CHECK(positions[t] >= 0);
    ops::fill_rope_row(inv_freq, positions[t], args.table.row(t));
  });
}

void RefBackend::rope(const ops::RopeArgs& args) {
  check(args);
  const int32_t* table_rows = args.table_rows.as<int32_t>();
  const int64_t half = args.x.dim(2) / 2;
  const int64_t pairs = args.table.dim(1) / 2;
  pool_.run(args.x.dim(0), [&](int64_t t, int) {
    MB_CHECK(table_rows[t] >= 0 && table_rows[t] < args.table.dim(0));
    const float* cosines = args.table.row(table_rows[t]);
    const float* sines = cosines + pairs;
    for (int64_t h = 0; h < args.x.dim(1); ++h) {
      float* x = args.x.f32() + t * args.x.stride[0] + h * 2 * half;
      for (int64_t k = 0; k < pairs; ++k) {
        const double a = x[k];
        const double b = x[k + half];
        x[k] = static_cast<float>(a * cosines[k] - b * sines[k]);
        x[k + half] = static_cast<float>(b * cosines[k] + a * sines[k]);
      }
    }
  });
}

}  // namespace markbase::backends
