// The forward pass of a Gemma text decoder, written once over ops::Backend.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "markbase/result.h"
#include "model/config.h"
#include "model/text_weights.h"
#include "ops/backend.h"

namespace markbase::model {

// Named intermediates, shown while a step runs on the composed ops.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual bool wants(std::string_view name) = 0;
  // values: f32 in the backend's memory, outermost axis = rows of the step; valid during the call.
  virtual void show(std::string_view name, const tensor::TensorView& values) = 0;
};

struct TraceName {
  std::string name;            // "layer.3.attn.q_norm"
  std::vector<int64_t> shape;  // of one token
};
// In the order in which a step shows them; listed with their meaning in trace_names.cc.
std::vector<TraceName> trace_names(const TextConfig& config);

// Rows of a step whose logits are asked for, in ascending order. [n] i32 each, n may be 0.
struct StepOutputs {
  tensor::TensorView rows;
  tensor::TensorView positions;  // those of the rows
  tensor::TensorView sequences;
};

// The tokens of one step: rows of any number of sequences, each sequence's rows together with
// ascending positions. All views are backend memory, filled before the step.
struct StepInputs {
  tensor::TensorView ids;            // [T] i32
  tensor::TensorView per_layer_ids;  // [T] i32, rows of the table of per-layer embeddings, if any
  tensor::TensorView positions;      // [T] i32
  tensor::TensorView sequences;      // [T] i32, row of the block tables
  // One a layer, for a layer that owns no K and V the view of its source.
  std::span<const ops::KvView> kv;
  tensor::TensorView row_numbers;  // [T] i32: 0, 1, 2, ...
  tensor::TensorView overflow;  // [num_hidden_layers] i32, set where K or V does not fit the cache
  // Given: only these rows go on once all keys and values are stored (the last layer that owns K
  // and V computes these for every row, and nothing else), with the bits that they have when all go
  // on. Null: every row goes through every layer.
  const StepOutputs* outputs = nullptr;
};

struct DecoderCapacity {
  int64_t max_rows = 1;         // tokens in a step
  int64_t max_output_rows = 1;  // rows of logits at a time
};

// Not thread safe: one step at a time. The config, weights and backend outlive it.
class TextDecoder {
 public:
  TextDecoder(const TextConfig& config, const TextWeights& weights, ops::Backend& backend)
      : config_(config), weights_(weights), backend_(backend) {}

  static size_t activation_bytes(const TextConfig& config, const DecoderCapacity& capacity);
  // Allocates the activations. Errors: kOutOfMemory.
  Result<void> plan(const DecoderCapacity& capacity);

  // All layers: leaves the residual stream of the T rows, or of the n rows of inputs.outputs. With
  // a sink the composed ops run and show their results; without one the fused ones, with the same
  // bits. A sink sees every row: it is not given together with outputs.
  void run_layers(const StepInputs& inputs, TraceSink* trace = nullptr);
  // The final norm of the rows that output_rows ([n] i32) names among those that run_layers left.
  // The returned states [n, hidden_size] f32 are overwritten by the next call and by run_head.
  tensor::TensorView run_final_norm(const tensor::TensorView& output_rows,
                                    TraceSink* trace = nullptr);
  // Final norm, head and soft cap of the rows that output_rows ([n] i32) names among those that
  // run_layers left. The returned logits [n, vocab_size] f32 are overwritten by the next call.
  tensor::TensorView run_head(const tensor::TensorView& output_rows, TraceSink* trace = nullptr);

 private:
  // Views of one step inside the one allocation; every tensor is f32, rows outermost.
  struct Activations {
    tensor::TensorView residual;        // [T, hidden]
    tensor::TensorView x;               // [T, hidden] normed input of a sub-layer
    tensor::TensorView out;             // [T, hidden] output of a sub-layer
    tensor::TensorView q;               // [T, heads * head_dim]
    tensor::TensorView k;               // [T, kv_heads * head_dim]
    tensor::TensorView v;               // [T, kv_heads * head_dim]
    tensor::TensorView attn;            // [T, heads * head_dim]
    tensor::TensorView gate;            // [T, intermediate]
    tensor::TensorView up;              // [T, intermediate]
    tensor::TensorView ple;             // [T, layers * width] per-layer inputs of all layers
    tensor::TensorView ple_context;     // [T, layers * width]
    tensor::TensorView ple_gate;        // [T, width]
    tensor::TensorView router;          // [T, num_experts]
    tensor::TensorView expert_ids;      // [T, top_k_experts] i32
    tensor::TensorView expert_weights;  // [T, top_k_experts]
    tensor::TensorView mixture;         // [T, hidden] output of the experts
    tensor::TensorView final;           // [n, hidden]
    tensor::TensorView logits;          // [n, vocab]
  };
  // The rotations of a step's rows, for the layers that rotate alike: one a TextConfig::ropes.
  struct Rope {
    tensor::TensorView inv_freq;  // [pairs], filled by plan
    tensor::TensorView table;     // [T, 2 pairs]
  };
  struct Step;
  // residual = (residual + rms_norm(x, post)) * scale; y = rms_norm(residual, next), and the names
  // that the results are shown by ("": not shown here).
  struct AddNorm {
    tensor::TensorView x = {};
    tensor::TensorView post = {};
    std::string_view post_name = {};
    tensor::TensorView residual = {};
    std::string_view sum_name = {};  // before the scale
    float scale = 1.0F;
    std::string_view scaled_name = {};
    tensor::TensorView next = {};  // no data: y is not computed
    std::string_view next_name = {};
    tensor::TensorView y = {};
  };
  enum class Projections : uint8_t { kAll, kKeysAndValues, kQueries };

  static Activations carve(const TextConfig& config, const DecoderCapacity& capacity,
                           tensor::Device device, base::Arena& arena);
  static std::vector<Rope> carve_ropes(const TextConfig& config, const DecoderCapacity& capacity,
                                       tensor::Device device, base::Arena& arena);
  static Activations views(const Activations& full, const TextConfig& config, int64_t rows,
                           const LayerConfig& layer);
  int64_t last_kv_layer() const;
  void fill_ropes(const Step& step);
  void embed(Step& step);
  void per_layer_inputs(const Step& step);
  void enter_layer(Step& step, int64_t layer_idx) const;
  void project(const Step& step, Projections which);
  void store_keys_and_values(const Step& step);
  void keep_outputs(Step& step);
  void attention(const Step& step);
  void mlp(const Step& step);
  void mixture(const Step& step);
  void add_per_layer_input(const Step& step);
  void end_layer(const Step& step, const tensor::TensorView& post, std::string_view post_name,
                 std::string_view sum_name);
  void gated_product(const Step& step, const tensor::TensorView& gate, const tensor::TensorView& up,
                     const ops::LinearTarget& target, std::string_view product_name);
  void norm(const tensor::TensorView& x, const tensor::TensorView& weight,
            const tensor::TensorView& y);
  void norm_rope(const Step& step, const tensor::TensorView& x, const tensor::TensorView& weight,
                 std::string_view norm_name, std::string_view rope_name);
  void add_norm(const Step& step, const AddNorm& norm);
  void show(const Step& step, std::string_view name, const tensor::TensorView& values) const;

  const TextConfig& config_;
  const TextWeights& weights_;
  ops::Backend& backend_;
  std::unique_ptr<ops::DeviceBuffer> memory_;
  Activations full_;         // at full capacity
  std::vector<Rope> ropes_;  // at full capacity
};

}  // namespace markbase::model
