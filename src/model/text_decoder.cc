#include "model/text_decoder.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"

namespace markbase::model {
namespace {

using tensor::DType;
using tensor::TensorView;

TensorView as_heads(const TensorView& rows, int64_t head_dim) {
  return rows.reshaped({rows.dim(0), rows.dim(1) / head_dim, head_dim});
}

// Every head a row.
TensorView head_rows(const TensorView& heads) {
  return heads.reshaped({heads.dim(0) * heads.dim(1), heads.dim(2)});
}

// Columns [begin, begin + width) of a matrix.
TensorView columns(const TensorView& rows, int64_t begin, int64_t width) {
  TensorView view = rows;
  view.data = rows.f32() + begin;
  view.shape[1] = width;
  return view;
}

}  // namespace

// One layer of one step: what the pieces of the forward pass share.
struct TextDecoder::Step {
  const StepInputs& inputs;
  TraceSink* trace;
  // At full capacity. Residual and out change places when only some rows go on.
  Activations full;
  // Those of the rows that are still under way.
  TensorView positions;
  TensorView sequences;
  TensorView rope_rows;
  Activations a = {};
  int64_t layer_idx = -1;  // -1: outside the layers
  const LayerConfig* layer = nullptr;
  const LayerWeights* weights = nullptr;

  int64_t rows() const { return positions.dim(0); }
};

size_t TextDecoder::activation_bytes(const TextConfig& config, const DecoderCapacity& capacity) {
  base::Arena counter;
  carve(config, capacity, tensor::Device::kHost, counter);
  carve_ropes(config, capacity, tensor::Device::kHost, counter);
  return counter.used_bytes();
}

TextDecoder::Activations TextDecoder::carve(const TextConfig& config,
                                            const DecoderCapacity& capacity, tensor::Device device,
                                            base::Arena& arena) {
  const auto take = [&](int64_t rows, int64_t width) {
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(width);
    return tensor::make_view(arena.take_array<float>(count), DType::kF32, {rows, width}, device);
  };
  const int64_t rows = capacity.max_rows;
  const int64_t heads_width = config.num_attention_heads * config.max_head_dim();
  const int64_t kv_width = config.max_key_value_heads() * config.max_head_dim();
  const int64_t ple_width = config.num_hidden_layers * config.hidden_size_per_layer_input;
  Activations a;
  a.residual = take(rows, config.hidden_size);
  a.x = take(rows, config.hidden_size);
  a.out = take(rows, config.hidden_size);
  a.q = take(rows, heads_width);
  a.k = take(rows, kv_width);
  a.v = take(rows, kv_width);
  a.attn = take(rows, heads_width);
  a.gate = take(rows, config.max_intermediate_size());
  a.up = take(rows, config.max_intermediate_size());
  a.ple = take(rows, ple_width);
  a.ple_context = take(rows, ple_width);
  a.ple_gate = take(rows, config.hidden_size_per_layer_input);
  a.router = take(rows, config.num_experts);
  a.expert_ids = take(rows, config.top_k_experts);
  a.expert_ids.dtype = DType::kI32;
  a.expert_weights = take(rows, config.top_k_experts);
  a.mixture = take(config.num_experts > 0 ? rows : 0, config.hidden_size);
  a.final = take(capacity.max_output_rows, config.hidden_size);
  a.logits = take(capacity.max_output_rows, config.vocab_size);
  return a;
}

Result<void> TextDecoder::plan(const DecoderCapacity& capacity) {
  memory_.reset();
  MB_ASSIGN(memory_, backend_.allocate(activation_bytes(config_, capacity)));
  base::Arena arena({static_cast<std::byte*>(memory_->data()), memory_->size_bytes()});
  full_ = carve(config_, capacity, backend_.device(), arena);
  ropes_ = carve_ropes(config_, capacity, backend_.device(), arena);
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const std::vector<float> inv_freq = config_.ropes[i].inv_freq();
    const auto turning = std::span(inv_freq).first(static_cast<size_t>(ropes_[i].inv_freq.dim(0)));
    if (!turning.empty()) backend_.upload(ropes_[i].inv_freq.data, std::as_bytes(turning));
  }
  return {};
}

std::vector<TextDecoder::Rope> TextDecoder::carve_ropes(const TextConfig& config,
                                                        const DecoderCapacity& capacity,
                                                        tensor::Device device, base::Arena& arena) {
  std::vector<Rope> ropes;
  for (const RopeConfig& rope : config.ropes) {
    const int64_t pairs = rope.num_rotated_pairs();
    const auto take = [&](int64_t count) {
      return arena.take_array<float>(static_cast<size_t>(count));
    };
    ropes.push_back({.inv_freq = tensor::make_view(take(pairs), DType::kF32, {pairs}, device),
                     .table = tensor::make_view(take(capacity.max_rows * 2 * pairs), DType::kF32,
                                                {capacity.max_rows, 2 * pairs}, device)});
  }
  return ropes;
}

// The views of a step with `rows` rows in a layer of these widths: contiguous at the front of each
// piece.
TextDecoder::Activations TextDecoder::views(const Activations& full, const TextConfig& config,
                                            int64_t rows, const LayerConfig& layer) {
  const auto at = [&](const TensorView& piece, int64_t width) {
    return tensor::make_view(piece.data, piece.dtype, {rows, width}, piece.device);
  };
  const int64_t heads_width = config.num_attention_heads * layer.head_dim;
  const int64_t kv_width = layer.num_key_value_heads * layer.head_dim;
  const int64_t ple_width = config.num_hidden_layers * config.hidden_size_per_layer_input;
  Activations a = full;
  a.residual = at(full.residual, config.hidden_size);
  a.x = at(full.x, config.hidden_size);
  a.out = at(full.out, config.hidden_size);
  a.q = at(full.q, heads_width);
  a.k = at(full.k, kv_width);
  a.v = at(full.v, kv_width);
  a.attn = at(full.attn, heads_width);
  a.gate = at(full.gate, layer.intermediate_size);
  a.up = at(full.up, layer.intermediate_size);
  a.ple = at(full.ple, ple_width);
  a.ple_context = at(full.ple_context, ple_width);
  a.ple_gate = at(full.ple_gate, config.hidden_size_per_layer_input);
  a.router = at(full.router, config.num_experts);
  a.expert_ids = at(full.expert_ids, config.top_k_experts);
  a.expert_weights = at(full.expert_weights, config.top_k_experts);
  a.mixture = at(full.mixture, config.hidden_size);
  return a;
}

// After it no layer stores anything.
int64_t TextDecoder::last_kv_layer() const {
  for (int64_t i = config_.num_hidden_layers; i-- > 0;) {
    if (config_.layers[static_cast<size_t>(i)].owns_kv()) return i;
  }
  return -1;
}

void TextDecoder::run_layers(const StepInputs& inputs, TraceSink* trace) {
  MB_CHECK_MSG(trace == nullptr || inputs.outputs == nullptr, "a trace shows every row");
  Step step{.inputs = inputs,
            .trace = trace,
            .full = full_,
            .positions = inputs.positions,
            .sequences = inputs.sequences,
            .rope_rows = inputs.row_numbers};
  const int64_t narrowed = inputs.outputs == nullptr ? -1 : last_kv_layer();
  // They change back where rows are left out: what remains always ends up in the same place.
  if (narrowed >= 0) std::swap(step.full.residual, step.full.out);
  fill_ropes(step);
  embed(step);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    enter_layer(step, i);
    show(step, "input_layernorm", step.a.x);
    if (i == narrowed) {
      project(step, Projections::kKeysAndValues);
      store_keys_and_values(step);
      keep_outputs(step);
      if (step.rows() == 0) return;
      project(step, Projections::kQueries);
    } else {
      project(step, Projections::kAll);
      if (step.layer->owns_kv()) store_keys_and_values(step);
    }
    attention(step);
    mlp(step);
  }
}

void TextDecoder::enter_layer(Step& step, int64_t layer_idx) const {
  const auto i = static_cast<size_t>(layer_idx);
  step.layer_idx = layer_idx;
  step.layer = &config_.layers[i];
  step.weights = &weights_.layers[i];
  step.a = views(step.full, config_, step.rows(), *step.layer);
}

void TextDecoder::fill_ropes(const Step& step) {
  for (const Rope& rope : ropes_) {
    backend_.rope_table({.positions = step.positions,
                         .inv_freq = rope.inv_freq,
                         .table = rope.table.first(step.rows())});
  }
}

void TextDecoder::embed(Step& step) {
  enter_layer(step, 0);
  step.layer_idx = -1;
  backend_.embedding({.ids = step.inputs.ids,
                      .table = weights_.embed_tokens.get(),
                      .scale = weights_.embed_scale,
                      .y = step.a.residual});
  show(step, "embedding", step.a.residual);
  if (config_.hidden_size_per_layer_input > 0) per_layer_inputs(step);
  norm(step.a.residual, weights_.layers[0].input_layernorm, step.a.x);
}

// For all layers at once: (rms_norm(projection of the embedding) + the table's rows) * 2^-1/2.
void TextDecoder::per_layer_inputs(const Step& step) {
  const Activations& a = step.a;
  const int64_t width = config_.hidden_size_per_layer_input;
  const TensorView inputs = as_heads(a.ple, width);
  const TensorView context = as_heads(a.ple_context, width);
  backend_.embedding({.ids = step.inputs.per_layer_ids,
                      .table = weights_.embed_tokens_per_layer.get(),
                      .scale = weights_.per_layer_embed_scale,
                      .y = a.ple});
  show(step, "ple.tokens", inputs);
  const ops::LinearTarget projection = {weights_.per_layer_model_projection.get(), a.ple_context};
  backend_.linear({.x = a.residual, .targets = {&projection, 1}});
  backend_.scale(
      {.x = a.ple_context, .factor = 1.0F / std::sqrt(static_cast<float>(config_.hidden_size))});
  const float scale = 1.0F / std::numbers::sqrt2_v<float>;
  if (step.trace == nullptr) {
    backend_.add_rms_norm({.x = head_rows(context),
                           .post_weight = weights_.per_layer_projection_norm,
                           .residual = head_rows(inputs),
                           .scale = scale,
                           .next_weight = {},
                           .eps = config_.rms_norm_eps,
                           .y = {}});
    return;
  }
  norm(head_rows(context), weights_.per_layer_projection_norm, head_rows(context));
  show(step, "ple.context", context);
  backend_.add({.x = a.ple_context, .y = a.ple});
  backend_.scale({.x = a.ple, .factor = scale});
  show(step, "ple.inputs", inputs);
}

void TextDecoder::project(const Step& step, Projections which) {
  const Activations& a = step.a;
  const bool queries = which != Projections::kKeysAndValues;
  const bool keys = which != Projections::kQueries && step.layer->owns_kv();
  std::array<ops::LinearTarget, 3> targets;
  size_t count = 0;
  if (queries) targets[count++] = {step.weights->q_proj.get(), a.q};
  if (keys) targets[count++] = {step.weights->k_proj.get(), a.k};
  if (keys && !step.layer->attention_k_eq_v) targets[count++] = {step.weights->v_proj.get(), a.v};
  backend_.linear({.x = a.x, .targets = std::span(targets).first(count)});
  if (queries) show(step, "attn.q", as_heads(a.q, step.layer->head_dim));
}

void TextDecoder::store_keys_and_values(const Step& step) {
  const int64_t dim = step.layer->head_dim;
  const TensorView k = as_heads(step.a.k, dim);
  const TensorView v = as_heads(step.a.v, dim);
  const bool k_eq_v = step.layer->attention_k_eq_v;
  show(step, "attn.k", k);
  if (!k_eq_v) show(step, "attn.v", v);
  // V first: where it is made from the keys, it takes them before their norm and rope.
  if (config_.value_norm) {
    norm(head_rows(k_eq_v ? k : v), TensorView{}, head_rows(v));
    show(step, "attn.v_norm", v);
  }
  norm_rope(step, k, step.weights->k_norm, "attn.k_norm", "attn.k_rope");
  backend_.kv_write({.k = k,
                     .v = v,
                     .positions = step.positions,
                     .sequences = step.sequences,
                     .cache = step.inputs.kv[static_cast<size_t>(step.layer_idx)],
                     .overflow = step.inputs.overflow.slice(step.layer_idx, 1)});
}

// From here on the step is about the output rows alone.
void TextDecoder::keep_outputs(Step& step) {
  const StepOutputs& outputs = *step.inputs.outputs;
  const Activations all = step.a;
  step.positions = outputs.positions;
  step.sequences = outputs.sequences;
  step.rope_rows = outputs.rows;
  std::swap(step.full.residual, step.full.out);
  std::swap(step.full.ple, step.full.ple_context);
  step.a = views(step.full, config_, step.rows(), *step.layer);
  if (step.rows() == 0) return;
  backend_.gather_rows({.x = all.residual, .rows = outputs.rows, .y = step.a.residual});
  norm(step.a.residual, step.weights->input_layernorm, step.a.x);
  if (config_.hidden_size_per_layer_input == 0) return;
  backend_.gather_rows({.x = all.ple, .rows = outputs.rows, .y = step.a.ple});
}

void TextDecoder::attention(const Step& step) {
  const Activations& a = step.a;
  const TensorView q = as_heads(a.q, step.layer->head_dim);
  const TensorView heads = as_heads(a.attn, step.layer->head_dim);
  norm_rope(step, q, step.weights->q_norm, "attn.q_norm", "attn.q_rope");
  backend_.attention({.q = q,
                      .positions = step.positions,
                      .sequences = step.sequences,
                      .cache = step.inputs.kv[static_cast<size_t>(step.layer_idx)],
                      .scale = config_.attention_scale,
                      .window = step.layer->sliding_window,
                      .y = heads});
  show(step, "attn.heads", heads);
  const ops::LinearTarget out = {step.weights->o_proj.get(), a.out};
  backend_.linear({.x = a.attn, .targets = {&out, 1}});
  show(step, "attn.o_proj", a.out);
  add_norm(step, {.x = a.out,
                  .post = step.weights->post_attention_layernorm,
                  .post_name = "post_attention_layernorm",
                  .residual = a.residual,
                  .sum_name = "attn.residual",
                  .next = step.weights->pre_feedforward_layernorm,
                  .next_name = "pre_feedforward_layernorm",
                  .y = a.x});
}

void TextDecoder::mlp(const Step& step) {
  const Activations& a = step.a;
  const std::array<ops::LinearTarget, 2> gate_up = {
      {{step.weights->gate_proj.get(), a.gate}, {step.weights->up_proj.get(), a.up}}};
  backend_.linear({.x = a.x, .targets = gate_up});
  show(step, "mlp.gate", a.gate);
  show(step, "mlp.up", a.up);
  gated_product(step, a.gate, a.up, {step.weights->down_proj.get(), a.out}, "mlp.product");
  show(step, "mlp.down_proj", a.out);
  if (config_.num_experts > 0) mixture(step);
  const TensorView& post = step.weights->post_feedforward_layernorm;
  if (config_.hidden_size_per_layer_input == 0) {
    const bool scaled = config_.layer_scalar;
    return end_layer(step, post, "post_feedforward_layernorm", scaled ? "mlp.residual" : "");
  }
  add_norm(step, {.x = a.out,
                  .post = post,
                  .post_name = "post_feedforward_layernorm",
                  .residual = a.residual,
                  .sum_name = "mlp.residual"});
  add_per_layer_input(step);
}

// out = rms_norm(out) + rms_norm(experts(rms_norm(residual))): the router and the experts read the
// residual stream beside the dense branch, each through a norm of its own.
void TextDecoder::mixture(const Step& step) {
  const Activations& a = step.a;
  const LayerWeights& w = *step.weights;
  norm(a.out, w.post_feedforward_layernorm_1, a.out);
  show(step, "post_feedforward_layernorm_1", a.out);
  norm(a.residual, w.router_scale, a.x);
  show(step, "router.scaled", a.x);
  const ops::LinearTarget scores = {w.router_proj.get(), a.router};
  backend_.linear({.x = a.x, .targets = {&scores, 1}});
  show(step, "router.scores", a.router);
  backend_.route({.scores = a.router,
                  .expert_scale = w.per_expert_scale,
                  .ids = a.expert_ids,
                  .weights = a.expert_weights});
  show(step, "router.probs", a.router);
  show(step, "router.weights", a.expert_weights);
  norm(a.residual, w.pre_feedforward_layernorm_2, a.x);
  show(step, "pre_feedforward_layernorm_2", a.x);
  backend_.experts({.x = a.x,
                    .ids = a.expert_ids,
                    .weights = a.expert_weights,
                    .gate = w.expert_gate_proj,
                    .up = w.expert_up_proj,
                    .down = w.expert_down_proj,
                    .y = a.mixture});
  show(step, "experts.output", a.mixture);
  add_norm(step, {.x = a.mixture,
                  .post = w.post_feedforward_layernorm_2,
                  .post_name = "post_feedforward_layernorm_2",
                  .residual = a.out,
                  .sum_name = "experts.sum"});
}

// residual += rms_norm(projection . (gelu_tanh(gate . residual) * the layer's slice)).
void TextDecoder::add_per_layer_input(const Step& step) {
  const Activations& a = step.a;
  const int64_t width = config_.hidden_size_per_layer_input;
  const TensorView slice = columns(a.ple, step.layer_idx * width, width);
  const ops::LinearTarget gate = {step.weights->per_layer_input_gate.get(), a.ple_gate};
  backend_.linear({.x = a.residual, .targets = {&gate, 1}});
  show(step, "ple.gate", a.ple_gate);
  gated_product(step, a.ple_gate, slice, {step.weights->per_layer_projection.get(), a.out},
                "ple.product");
  show(step, "ple.projection", a.out);
  end_layer(step, step.weights->post_per_layer_input_norm, "post_per_layer_input_norm",
            config_.layer_scalar ? "ple.residual" : "");
}

// The last addition of a layer and the layer scalar. The next layer's norm of the sum is computed
// with it; after the last layer only the rows that are asked for are normed, by run_head.
void TextDecoder::end_layer(const Step& step, const TensorView& post, std::string_view post_name,
                            std::string_view sum_name) {
  const bool last = step.layer_idx + 1 == config_.num_hidden_layers;
  const auto next = static_cast<size_t>(step.layer_idx + 1);
  add_norm(step, {.x = step.a.out,
                  .post = post,
                  .post_name = post_name,
                  .residual = step.a.residual,
                  .sum_name = sum_name,
                  .scale = step.weights->layer_scalar,
                  .scaled_name = "output",
                  .next = last ? TensorView{} : weights_.layers[next].input_layernorm,
                  .y = step.a.x});
}

TensorView TextDecoder::run_final_norm(const TensorView& output_rows, TraceSink* trace) {
  const TensorView normed = full_.final.first(output_rows.dim(0));
  backend_.gather_rows({.x = full_.residual, .rows = output_rows, .y = normed});
  norm(normed, weights_.norm, normed);
  if (trace != nullptr && trace->wants("final_norm")) trace->show("final_norm", normed);
  return normed;
}

TensorView TextDecoder::run_head(const TensorView& output_rows, TraceSink* trace) {
  const TensorView normed = run_final_norm(output_rows, trace);
  const TensorView logits = full_.logits.first(output_rows.dim(0));
  const ops::LinearTarget head = {&weights_.head(), logits};
  backend_.linear({.x = normed, .targets = {&head, 1}});
  if (config_.final_logit_softcapping > 0.0F) {
    backend_.soft_cap({.x = logits, .cap = config_.final_logit_softcapping});
  }
  if (trace != nullptr && trace->wants("logits")) trace->show("logits", logits);
  return logits;
}

void TextDecoder::norm(const TensorView& x, const TensorView& weight, const TensorView& y) {
  backend_.rms_norm({.x = x, .weight = weight, .eps = config_.rms_norm_eps, .y = y});
}

// y = weight . (gelu_tanh(gate) * up)
void TextDecoder::gated_product(const Step& step, const TensorView& gate, const TensorView& up,
                                const ops::LinearTarget& target, std::string_view product_name) {
  if (step.trace == nullptr) {
    return backend_.gated_linear({.gate = gate, .up = up, .target = target});
  }
  backend_.gelu_mul({.gate = gate, .up = up, .y = gate});
  show(step, product_name, gate);
  backend_.linear({.x = gate, .targets = {&target, 1}});
}

// x = rope(rms_norm(x)), in place.
void TextDecoder::norm_rope(const Step& step, const TensorView& x, const TensorView& weight,
                            std::string_view norm_name, std::string_view rope_name) {
  const TensorView& table = ropes_[static_cast<size_t>(step.layer->rope_idx)].table;
  if (step.trace == nullptr) {
    backend_.norm_rope({.x = x,
                        .weight = weight,
                        .eps = config_.rms_norm_eps,
                        .table_rows = step.rope_rows,
                        .table = table});
    return;
  }
  norm(head_rows(x), weight, head_rows(x));
  show(step, norm_name, x);
  backend_.rope({.x = x, .table_rows = step.rope_rows, .table = table});
  show(step, rope_name, x);
}

void TextDecoder::add_norm(const Step& step, const AddNorm& norms) {
  const bool has_next = norms.next.data != nullptr;
  if (step.trace == nullptr) {
    backend_.add_rms_norm({.x = norms.x,
                           .post_weight = norms.post,
                           .residual = norms.residual,
                           .scale = norms.scale,
                           .next_weight = norms.next,
                           .eps = config_.rms_norm_eps,
                           .y = has_next ? norms.y : TensorView{}});
    return;
  }
  norm(norms.x, norms.post, norms.x);
  show(step, norms.post_name, norms.x);
  backend_.add({.x = norms.x, .y = norms.residual});
  show(step, norms.sum_name, norms.residual);
  if (norms.scale != 1.0F) backend_.scale({.x = norms.residual, .factor = norms.scale});
  show(step, norms.scaled_name, norms.residual);
  if (!has_next) return;
  norm(norms.residual, norms.next, norms.y);
  show(step, norms.next_name, norms.y);
}

// Nothing where the name is empty.
void TextDecoder::show(const Step& step, std::string_view name, const TensorView& values) const {
  if (step.trace == nullptr || name.empty()) return;
  const std::string full_name =
      step.layer_idx < 0 ? std::string(name) : fmt::format("layer.{}.{}", step.layer_idx, name);
  if (step.trace->wants(full_name)) step.trace->show(full_name, values);
}

}  // namespace markbase::model
