// y[t, :] = scale * table[ids[t], :]
#pragma once

#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace markbase::ops {

// ids: [T] i32, each in [0, table rows) (the caller checked them). table: [vocab, hidden] packed or
// mapped.
// scale: float32, multiplied once after exact decoding. y: [T, hidden] f32, may not alias anything.
struct EmbeddingArgs {
  tensor::TensorView ids;
  const PackedWeight* table = nullptr;
  float scale = 1.0F;
  tensor::TensorView y;
};
void check(const EmbeddingArgs& args);

}  // namespace markbase::ops
