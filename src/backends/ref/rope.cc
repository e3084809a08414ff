#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::rope(const ops::RopeArgs& args) {
  check(args);
  const int32_t* positions = args.positions.as<int32_t>();
  const int64_t half = args.x.dim(2) / 2;
  pool_.run(args.x.dim(0), [&](int64_t t, int) {
    MB_CHECK(positions[t] >= 0 && positions[t] < args.table.dim(0));
    const float* cosines = args.table.row(positions[t]);
    const float* sines = cosines + half;
    for (int64_t h = 0; h < args.x.dim(1); ++h) {
      float* x = args.x.f32() + t * args.x.stride[0] + h * 2 * half;
      for (int64_t k = 0; k < half; ++k) {
        const double a = x[k];
        const double b = x[k + half];
        x[k] = static_cast<float>(a * cosines[k] - b * sines[k]);
        x[k + half] = static_cast<float>(b * cosines[k] + a * sines[k]);
      }
    }
  });
}

}  // namespace markbase::backends
