// A mixture of experts on the CPU: rows sorted by expert, so that the weights of each expert in use
// are read once for all rows of a step (for every 1,024 of a larger one), and those of the others
// not at all.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels/linear_kernels.h"
#include "backends/cpu/vector_ops.h"
#include "base/thread_pool.h"
#include "ops/backend.h"
#include "ops/experts.h"

namespace markbase::backends::cpu {

// Scratch of experts() for steps up to this size; 0 where no layer has experts.
size_t experts_scratch_bytes(const LinearKernels& kernels, const ops::StepCapacity& capacity,
                             int num_threads);

// What experts() needs besides its arguments.
struct ExpertsContext {
  const LinearKernels* linear = nullptr;
  const VectorKernels* vector = nullptr;
  base::ThreadPool* pool = nullptr;
  std::span<std::byte> scratch;  // experts_scratch_bytes(), 64-byte aligned
  ActivationPrecision activations = ActivationPrecision::k16;
};
// The args were checked by ops::check.
void experts(const ExpertsContext& context, const ops::ExpertsArgs& args);

}  // namespace markbase::backends::cpu
