// Products of activations with packed weights: quantises x once, then shares row blocks and tiles
// of rows of x out over the pool. The arithmetic is fixed by docs/arithmetic.md; nothing here
// changes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels/linear_kernels.h"
#include "base/thread_pool.h"
#include "ops/backend.h"
#include "ops/embedding.h"
#include "ops/linear.h"

namespace markbase::backends::cpu {

// The kernels of a level, which the machine must support.
const LinearKernels& linear_kernels(CpuIsa isa);

// Scratch of linear() for steps up to this size.
size_t linear_scratch_bytes(const LinearKernels& kernels, const ops::StepCapacity& capacity,
                            int num_threads);

// What linear() needs besides its arguments.
struct LinearContext {
  const LinearKernels* kernels = nullptr;
  base::ThreadPool* pool = nullptr;
  std::span<std::byte> scratch;  // linear_scratch_bytes(), 64-byte aligned
  ActivationPrecision activations = ActivationPrecision::k16;
};
void linear(const LinearContext& context, const ops::LinearArgs& args);

void embedding(base::ThreadPool& pool, const ops::EmbeddingArgs& args);

}  // namespace markbase::backends::cpu
