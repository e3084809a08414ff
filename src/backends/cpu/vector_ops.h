// Every op of the CPU backend but the products: driven over rows and chunks here, computed by the
// row kernels of one instruction set. All levels, thread counts and chunkings give the same bits.
//
// The args were checked by ops::check. Nothing is allocated, nothing is kept between calls.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/cpu_backend.h"
#include "base/thread_pool.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "ops/kv_cache.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/token_logprobs.h"

namespace markbase::backends::cpu {

// The row kernels of one instruction set (kernels/vector_kernels.h).
struct VectorKernels;

// The table of a level; levels without vector kernels of their own share the next weaker one's
// (avxvnni: avx2; vnni, amx: avx512). The level must be supported by the machine. Lives for ever.
const VectorKernels& vector_kernels(CpuIsa isa);

// Scratch that attention() needs for steps up to `capacity` on a pool of num_threads; 64-byte
// aligned.
size_t vector_scratch_bytes(const ops::StepCapacity& capacity, int num_threads);

// Bytes of one block of ops::kKvBlockTokens tokens of one layer, a multiple of 64. The layout
// inside is described in attention_layout.h.
size_t kv_block_bytes(const ops::KvLayout& layout);

void rms_norm(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RmsNormArgs& args);
void add(const VectorKernels& kernels, base::ThreadPool& pool, const ops::AddArgs& args);
void gelu_mul(const VectorKernels& kernels, base::ThreadPool& pool, const ops::GeluMulArgs& args);
void soft_cap(const VectorKernels& kernels, base::ThreadPool& pool, const ops::SoftCapArgs& args);
void scale(const VectorKernels& kernels, base::ThreadPool& pool, const ops::ScaleArgs& args);
void gather_rows(const VectorKernels& kernels, base::ThreadPool& pool,
                 const ops::GatherRowsArgs& args);
void rope_table(base::ThreadPool& pool, const ops::RopeTableArgs& args);
void rope(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RopeArgs& args);
void kv_write(const VectorKernels& kernels, base::ThreadPool& pool, const ops::KvWriteArgs& args);
void route(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RouteArgs& args);
void sample(const VectorKernels& kernels, base::ThreadPool& pool, const ops::SampleArgs& args);
void token_logprobs(base::ThreadPool& pool, const ops::TokenLogprobsArgs& args);

// Fused; the bits of their compositions.
void add_rms_norm(const VectorKernels& kernels, base::ThreadPool& pool,
                  const ops::AddRmsNormArgs& args);
void norm_rope(const VectorKernels& kernels, base::ThreadPool& pool, const ops::NormRopeArgs& args);

// scratch: at least vector_scratch_bytes() of a capacity that covers this step and this pool.
void attention(const VectorKernels& kernels, base::ThreadPool& pool, std::span<std::byte> scratch,
               const ops::AttentionArgs& args);

}  // namespace markbase::backends::cpu
