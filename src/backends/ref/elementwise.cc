#include <cmath>
#include <cstring>

#include "backends/ref/gelu.h"
#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

void RefBackend::add(const ops::AddArgs& args) {
  check(args);
  pool_.run(args.x.dim(0), [&](int64_t i, int) {
    const float* x = args.x.row(i);
    float* y = args.y.row(i);
    for (int64_t j = 0; j < args.x.dim(1); ++j) y[j] = x[j] + y[j];
  });
}

void RefBackend::gelu_mul(const ops::GeluMulArgs& args) {
  check(args);
  pool_.run(args.gate.dim(0), [&](int64_t i, int) {
    const float* gate = args.gate.row(i);
    const float* up = args.up.row(i);
    float* y = args.y.row(i);
    for (int64_t j = 0; j < args.gate.dim(1); ++j) {
      y[j] = static_cast<float>(gelu_tanh(gate[j]) * static_cast<double>(up[j]));
    }
  });
}

void RefBackend::soft_cap(const ops::SoftCapArgs& args) {
  check(args);
  const double cap = args.cap;
  pool_.run(args.x.dim(0), [&](int64_t i, int) {
    float* x = args.x.row(i);
    for (int64_t j = 0; j < args.x.dim(1); ++j) {
      x[j] = static_cast<float>(cap * std::tanh(static_cast<double>(x[j]) / cap));
    }
  });
}

void RefBackend::scale(const ops::ScaleArgs& args) {
  check(args);
  pool_.run(args.x.dim(0), [&](int64_t i, int) {
    float* x = args.x.row(i);
    for (int64_t j = 0; j < args.x.dim(1); ++j) x[j] = x[j] * args.factor;
  });
}

void RefBackend::gather_rows(const ops::GatherRowsArgs& args) {
  check(args);
  const int32_t* rows = args.rows.as<int32_t>();
  const size_t row_bytes = static_cast<size_t>(args.y.dim(1)) * sizeof(float);
  for (int64_t i = 0; i < args.y.dim(0); ++i) {
    MB_CHECK(rows[i] >= 0 && rows[i] < args.x.dim(0));
    std::memcpy(args.y.row(i), args.x.row(rows[i]), row_bytes);
  }
}

}  // namespace markbase::backends
