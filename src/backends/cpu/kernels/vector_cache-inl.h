// Rounding keys and values into a block of the cache.
#pragma once

#include "backends/cpu/kernels/simd-inl.h"
#include "backends/cpu/kernels/vector_kernels.h"

namespace {
namespace cache {

using markbase::backends::cpu::kBlockKeys;
using markbase::backends::cpu::KvStore;
using markbase::backends::cpu::KvStoreArgs;
using simd::F;
using simd::kLanes;

// Smallest magnitudes that round beyond the type: half a unit past the largest half (65504) and the
// largest bfloat16; for float32 infinity itself. NaN is below nothing.
template <KvStore kType>
MB_INLINE bool fits(F x) {
  const float limit = kType == KvStore::kF16    ? 65520.0f
                      : kType == KvStore::kBF16 ? simd::float_of(0x7f7f8000u)
                                                : __builtin_inff();
  return simd::all_less(simd::abs(x), simd::set1(limit));
}

template <class T>
struct Lanes {
  T v[kLanes];
};

MB_INLINE Lanes<uint16_t> to_f16(F x) {
  Lanes<uint16_t> out;
  simd::store_f16(out.v, x);
  return out;
}

MB_INLINE Lanes<uint16_t> to_bf16(F x) {
  float values[kLanes];
  simd::store(values, x);
  Lanes<uint16_t> out;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t bits = simd::bits_of(values[i]);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    out.v[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
  return out;
}

MB_INLINE Lanes<float> to_f32(F x) {
  Lanes<float> out;
  simd::store(out.v, x);
  return out;
}

// round(x / scale) to nearest even; |x| <= 127 scale but for a subnormal scale, hence the bounds.
// NaN gives -127.
MB_INLINE Lanes<int8_t> to_q8(F x, float scale) {
  constexpr float kRoundToInteger = 0x1.8p23f;
  F code = simd::set1(0.0f);
  if (scale != 0.0f) code = simd::div(x, simd::set1(scale));
  code = simd::min(simd::max(code, simd::set1(-127.0f)), simd::set1(127.0f));
  code = simd::sub(simd::add(code, simd::set1(kRoundToInteger)), simd::set1(kRoundToInteger));
  float values[kLanes];
  simd::store(values, code);
  Lanes<int8_t> out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = static_cast<int8_t>(values[i]);
  return out;
}

// Whole vectors, and what there is of the last one with zeros behind it.
MB_INLINE int64_t padded(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }
MB_INLINE F load_some(const float* p, int64_t count) {
  return count >= kLanes ? simd::load(p) : simd::load_n(p, count);
}

// Sixteen dims of one key: a key is a lane, so they go to sixteen rows.
template <class T>
MB_INLINE void put_key(T* keys, int entry, int64_t dim, int64_t head_dim, const Lanes<T>& x) {
  T* group = keys + (entry / kLanes) * head_dim * kLanes + entry % kLanes;
  for (int i = 0; i < kLanes; ++i) group[(dim + i) * kLanes] = x.v[i];
}
template <class T>
MB_INLINE void put_value(T* values, int entry, int64_t dim, const Lanes<T>& x) {
  T* row = values + (dim * kBlockKeys + int64_t{entry} * kLanes);
  for (int i = 0; i < kLanes; ++i) row[i] = x.v[i];
}

template <KvStore kType, class T, class Round>
MB_INLINE bool store_rounded(const KvStoreArgs& args, const Round& round) {
  T* keys = reinterpret_cast<T*>(args.head);
  T* values = reinterpret_cast<T*>(args.head + args.offsets.v);
  const int64_t padded_dim = padded(args.head_dim);
  bool ok = true;
  for (int64_t d = 0; d < args.head_dim; d += kLanes) {
    const F k = load_some(args.k + d, args.head_dim - d);
    const F v = load_some(args.v + d, args.head_dim - d);
    ok = fits<kType>(k) && fits<kType>(v) && ok;
    put_key(keys, args.entry, d, padded_dim, round(k));
    put_value(values, args.entry, d, round(v));
  }
  return ok;
}

// max|x| / 127
MB_INLINE float q8_scale(const float* x, int64_t n) {
  F highest = simd::set1(0.0f);
  for (int64_t d = 0; d < n; d += kLanes) {
    highest = simd::max(simd::abs(load_some(x + d, n - d)), highest);
  }
  return simd::reduce_max(highest) / 127.0f;
}

MB_INLINE bool store_q8(const KvStoreArgs& args) {
  const float k_scale = q8_scale(args.k, args.head_dim);
  const float v_scale = q8_scale(args.v, args.head_dim);
  reinterpret_cast<float*>(args.head + args.offsets.k_scales)[args.entry] = k_scale;
  reinterpret_cast<float*>(args.head + args.offsets.v_scales)[args.entry] = v_scale;
  int8_t* keys = reinterpret_cast<int8_t*>(args.head);
  int8_t* values = reinterpret_cast<int8_t*>(args.head + args.offsets.v);
  const int64_t padded_dim = padded(args.head_dim);
  bool ok = true;
  for (int64_t d = 0; d < args.head_dim; d += kLanes) {
    const F k = load_some(args.k + d, args.head_dim - d);
    const F v = load_some(args.v + d, args.head_dim - d);
    ok = fits<KvStore::kQ8>(k) && fits<KvStore::kQ8>(v) && ok;
    put_key(keys, args.entry, d, padded_dim, to_q8(k, k_scale));
    put_value(values, args.entry, d, to_q8(v, v_scale));
  }
  return ok;
}

bool kv_store(const KvStoreArgs& args) {
  switch (args.type) {
    case KvStore::kF16:
      return store_rounded<KvStore::kF16, uint16_t>(args, [](F x) { return to_f16(x); });
    case KvStore::kBF16:
      return store_rounded<KvStore::kBF16, uint16_t>(args, [](F x) { return to_bf16(x); });
    case KvStore::kF32:
      return store_rounded<KvStore::kF32, float>(args, [](F x) { return to_f32(x); });
    case KvStore::kQ8:
      return store_q8(args);
  }
  return false;
}

}  // namespace cache
}  // namespace
