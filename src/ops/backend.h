// What a device can do. The model is written once over this interface.
//
// Memory: activations live in the backend's memory; step arguments (ids, positions, tables) are
// written by `upload` before a step and results read by `download` after it. Inside a step nothing
// is allocated, nothing is read back and nothing waits, so a step can be captured as one graph and
// replayed.
//
// Ops enqueue in order; on a CPU they are done when the call returns. Same input, same bits: no
// op's row depends on the other rows, on threads, or on the instruction set chosen.
//
// A fused op has a composed default made of the plain ones; a backend that overrides it gives the
// same bits.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "markbase/result.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/experts.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"
#include "ops/packed_weight.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "ops/token_logprobs.h"
#include "quant/weight_view.h"
#include "tensor/tensor.h"

namespace markbase::ops {

// Memory of a backend, freed on destruction.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t size_bytes() const = 0;
};

// The largest step that will come: what scratch memory is planned from.
struct StepCapacity {
  int64_t max_rows = 1;         // tokens in a step
  int64_t max_linear_cols = 0;  // widest K of any weight
  int64_t max_heads = 0;
  int64_t max_head_dim = 0;
  int64_t max_context = 0;  // keys a row can see
  // Of layers with experts; 0: there are none.
  int64_t num_experts = 0;
  int64_t top_k_experts = 0;
  int64_t expert_inputs = 0;  // columns of the gate and up weights
  int64_t expert_width = 0;   // their rows
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;    // "cpu", "ref", "cuda"
  virtual std::string description() const = 0;  // kernel set in use, for people
  virtual tensor::Device device() const = 0;

  // Memory (zeroed). Errors: kOutOfMemory.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(size_t size_bytes) = 0;
  virtual void upload(void* device, std::span<const std::byte> host) = 0;
  virtual void download(std::span<std::byte> host, const void* device) = 0;
  // Waits until all that was enqueued is done.
  virtual void synchronize() = 0;

  // A weight enters once. `on_rows_done(begin_row, end_row)` is told (on the calling thread) which
  // source rows will not be read again, so that their pages can be released while packing goes on.
  // Errors: kOutOfMemory, kBadInput for a format this backend cannot compute with or a scale that
  // is NaN or infinite.
  virtual Result<std::unique_ptr<PackedWeight>> pack(
      const quant::WeightView& weight, std::string_view name,
      base::FunctionRef<void(int64_t begin_row, int64_t end_row)> on_rows_done) = 0;
  // Bytes pack() will keep for this weight, for the plan.
  virtual size_t packed_bytes(const quant::WeightView& weight) const = 0;

  // A table that is only looked up: its rows stay where they are and are decoded as embedding()
  // asks for them, with the bits of the packed table. The bytes behind `table` outlive the result.
  // A scale that is NaN or infinite is not found here: it shows in the rows that use it.
  // Errors: kBadInput for a view that is not consistent or a format without a decoder.
  virtual Result<std::unique_ptr<PackedWeight>> map_table(const quant::WeightView& table,
                                                          std::string_view name) = 0;

  // For keeping packed weights in a file. The name of the layout, another one whenever the bytes
  // for the same weight change; empty: this backend's weights are not kept.
  virtual std::string packed_layout() const { return {}; }
  // The packed_bytes() of a weight, readable by the host.
  virtual std::span<const std::byte> packed_content(const PackedWeight&) const { return {}; }
  // A weight from its packed_content(): packed_bytes() at a multiple of 64, which may stay where
  // they are and outlive the result. `weight` is asked for its shape and type only. Errors:
  // kOutOfMemory.
  virtual Result<std::unique_ptr<PackedWeight>> restore(const quant::WeightView& weight,
                                                        std::span<const std::byte> content) {
    (void)weight, (void)content;
    return Error{ErrorCode::kFailed, "this backend keeps no packed weights in files"};
  }

  // Allocates the scratch for steps up to this size. Called once before the first step, again to
  // grow.
  virtual Result<void> plan(const StepCapacity& capacity) = 0;
  virtual size_t plan_bytes(const StepCapacity& capacity) const = 0;

  // Bytes of one block of kKvBlockTokens tokens of one layer.
  virtual size_t kv_block_bytes(const KvLayout& layout) const = 0;

  // Runs `body`, which calls ops only; a backend may capture it once per shape and replay it.
  virtual void step(base::FunctionRef<void()> body) { body(); }

  // --- ops ---
  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void add(const AddArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void gelu_mul(const GeluMulArgs& args) = 0;
  virtual void soft_cap(const SoftCapArgs& args) = 0;
  virtual void scale(const ScaleArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void rope_table(const RopeTableArgs& args) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  virtual void kv_write(const KvWriteArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void sample(const SampleArgs& args) = 0;
  virtual void token_logprobs(const TokenLogprobsArgs& args) = 0;
  virtual void route(const RouteArgs& args) = 0;
  virtual void experts(const ExpertsArgs& args) = 0;

  // --- fused ops, composed by default ---
  virtual void add_rms_norm(const AddRmsNormArgs& args) { compose(*this, args); }
  virtual void norm_rope(const NormRopeArgs& args) { compose(*this, args); }
  virtual void gated_linear(const GatedLinearArgs& args) { compose(*this, args); }
};

}  // namespace markbase::ops
