#include "backends/cpu/kernels/attention-inl.h"
#include "backends/cpu/kernels/vector-inl.h"
#include "backends/cpu/kernels/vector_cache-inl.h"
#include "backends/cpu/kernels/vector_kernels.h"

namespace markbase::backends::cpu {

const VectorKernels& avx512_vector_kernels() {
  static constexpr VectorKernels kKernels = {
      vec::rms_norm,   vec::add_rms_norm,  vec::add,          vec::add_scaled,
      vec::gelu_mul,   vec::soft_cap,      vec::scale,        vec::rope,
      cache::kv_store, attn::pack_queries, attn::attend_span, attn::merge_span,
      attn::finish,    vec::exp_all,       vec::tanh_all,     vec::gelu_tanh_all,
  };
  return kKernels;
}

}  // namespace markbase::backends::cpu
