#include <cmath>

#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::rms_norm(const ops::RmsNormArgs& args) {
  check(args);
  const int64_t width = args.x.dim(1);
  const float* weight = args.weight.data == nullptr ? nullptr : args.weight.f32();
  pool_.run(args.x.dim(0), [&](int64_t i, int) {
    const float* x = args.x.row(i);
    float* y = args.y.row(i);
    double sum = 0.0;
    for (int64_t j = 0; j < width; ++j)
      sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    const double factor =
        1.0 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(args.eps));
    for (int64_t j = 0; j < width; ++j) {
      const double w = weight == nullptr ? 1.0 : static_cast<double>(weight[j]);
      y[j] = static_cast<float>(static_cast<double>(x[j]) * factor * w);
    }
  });
}

}  // namespace markbase::backends
