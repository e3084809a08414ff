// A block is [64][num_kv_heads][head_dim] of K, then the same of V, as the float32 of the value
// rounded to the cache's type.
#include <atomic>
#include <cmath>

#include "backends/ref/kv_block.h"
#include "base/half.h"

namespace markbase::backends {
namespace {

float round_to_type(float value, ops::KvType type) {
  switch (type) {
    case ops::KvType::kF16:
      return base::fp16_to_float(base::float_to_fp16(value));
    case ops::KvType::kBF16:
      return base::bf16_to_float(base::float_to_bf16(value));
    default:
      return value;
  }
}

// One token's K or V of one head as code * scale, scale = max|x| / 127 in float32.
void round_q8(const float* in, int64_t n, float* out) {
  float largest = 0.0F;
  for (int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(in[i]));
  const float scale = largest / 127.0F;
  for (int64_t i = 0; i < n; ++i) {
    const float code = scale == 0.0F ? 0.0F : std::nearbyint(in[i] / scale);
    out[i] = std::fmin(std::fmax(code, -127.0F), 127.0F) * scale;
  }
}

// False when a value is not finite or does not fit.
bool write_head(const float* in, int64_t n, ops::KvType type, float* out) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = round_to_type(in[i], type);
    fits = fits && std::isfinite(in[i]) && std::isfinite(out[i]);
  }
  if (type == ops::KvType::kQ8) round_q8(in, n, out);
  return fits;
}

}  // namespace

size_t RefBackend::kv_block_bytes(const ops::KvLayout& layout) const {
  return static_cast<size_t>(2 * ops::kKvBlockTokens * layout.num_kv_heads * layout.head_dim) *
         sizeof(float);
}

void RefBackend::kv_write(const ops::KvWriteArgs& args) {
  check(args);
  const ops::KvLayout& layout = args.cache.layout;
  const int32_t* positions = args.positions.as<int32_t>();
  const int32_t* sequences = args.sequences.as<int32_t>();
  std::atomic<bool> overflow{false};
  pool_.run(args.k.dim(0), [&](int64_t t, int) {
    float* k_out = kv_key(args.cache, kv_block_bytes(layout), sequences[t], positions[t]);
    float* v_out = k_out + kv_value_offset(layout);
    for (int64_t h = 0; h < layout.num_kv_heads; ++h) {
      const int64_t at = h * layout.head_dim;
      const float* k = args.k.f32() + t * args.k.stride[0] + at;
      const float* v = args.v.f32() + t * args.v.stride[0] + at;
      const bool k_fits = write_head(k, layout.head_dim, layout.type, k_out + at);
      const bool v_fits = write_head(v, layout.head_dim, layout.type, v_out + at);
      if (!k_fits || !v_fits) overflow.store(true);
    }
  });
  if (overflow.load()) *args.overflow.as<int32_t>() = 1;
}

}  // namespace markbase::backends
