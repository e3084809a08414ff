#include "model/text_decoder.h"

#include <array>

#include "base/buffer.h"
#include "base/error.h"

namespace markbase::model {
namespace {

using tensor::DType;
using tensor::TensorView;

TensorView as_heads(const TensorView& rows, int64_t head_dim) {
  return rows.reshaped({rows.dim(0), rows.dim(1) / head_dim, head_dim});
}

}  // namespace

// One layer of one step: what the pieces of the forward pass share.
struct TextDecoder::Step {
  const StepInputs& inputs;
  TraceSink* trace;
  Activations a;
  int64_t layer_idx = -1;  // -1: outside the layers
  const LayerConfig* layer = nullptr;
  const LayerWeights* weights = nullptr;
};

std::vector<TraceName> trace_names(const TextConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.num_attention_heads;
  std::vector<TraceName> names = {{"embedding", {hidden}}};
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const int64_t kv_heads = layer.num_key_value_heads;
    const int64_t dim = layer.head_dim;
    const int64_t wide = layer.intermediate_size;
    const std::array<TraceName, 19> of_layer = {{
        {"input_layernorm", {hidden}},
        {"attn.q", {heads, dim}},
        {"attn.k", {kv_heads, dim}},
        {"attn.v", {kv_heads, dim}},
        {"attn.q_norm", {heads, dim}},
        {"attn.q_rope", {heads, dim}},
        {"attn.k_norm", {kv_heads, dim}},
        {"attn.k_rope", {kv_heads, dim}},
        {"attn.heads", {heads, dim}},
        {"attn.o_proj", {hidden}},
        {"post_attention_layernorm", {hidden}},
        {"attn.residual", {hidden}},
        {"pre_feedforward_layernorm", {hidden}},
        {"mlp.gate", {wide}},
        {"mlp.up", {wide}},
        {"mlp.product", {wide}},
        {"mlp.down_proj", {hidden}},
        {"post_feedforward_layernorm", {hidden}},
        {"output", {hidden}},
    }};
    for (const TraceName& entry : of_layer) {
      names.push_back({fmt::format("layer.{}.{}", i, entry.name), entry.shape});
    }
  }
  names.push_back({"final_norm", {hidden}});
  names.push_back({"logits", {config.vocab_size}});
  return names;
}

size_t TextDecoder::activation_bytes(const TextConfig& config, const DecoderCapacity& capacity) {
  base::Arena counter;
  carve(config, capacity, tensor::Device::kHost, counter);
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
  a.final = take(capacity.max_output_rows, config.hidden_size);
  a.logits = take(capacity.max_output_rows, config.vocab_size);
  return a;
}

Result<void> TextDecoder::plan(const DecoderCapacity& capacity) {
  memory_.reset();
  MB_ASSIGN(memory_, backend_.allocate(activation_bytes(config_, capacity)));
  base::Arena arena({static_cast<std::byte*>(memory_->data()), memory_->size_bytes()});
  full_ = carve(config_, capacity, backend_.device(), arena);
  return {};
}

// The views of a step with `rows` rows in a layer of these widths: contiguous at the front of each
// piece.
TextDecoder::Activations TextDecoder::views(int64_t rows, const LayerConfig& layer) const {
  const auto at = [&](const TensorView& piece, int64_t width) {
    return tensor::make_view(piece.data, DType::kF32, {rows, width}, piece.device);
  };
  const int64_t heads_width = config_.num_attention_heads * layer.head_dim;
  const int64_t kv_width = layer.num_key_value_heads * layer.head_dim;
  Activations a = full_;
  a.residual = at(full_.residual, config_.hidden_size);
  a.x = at(full_.x, config_.hidden_size);
  a.out = at(full_.out, config_.hidden_size);
  a.q = at(full_.q, heads_width);
  a.k = at(full_.k, kv_width);
  a.v = at(full_.v, kv_width);
  a.attn = at(full_.attn, heads_width);
  a.gate = at(full_.gate, layer.intermediate_size);
  a.up = at(full_.up, layer.intermediate_size);
  return a;
}

void TextDecoder::run_layers(const StepInputs& inputs, TraceSink* trace) {
  Step step{.inputs = inputs, .trace = trace, .a = views(inputs.ids.dim(0), config_.layers[0])};
  backend_.embedding({.ids = inputs.ids,
                      .table = weights_.embed_tokens.get(),
                      .scale = weights_.embed_scale,
                      .y = step.a.residual});
  show(step, "embedding", step.a.residual);
  backend_.rms_norm({.x = step.a.residual,
                     .weight = weights_.layers[0].input_layernorm,
                     .eps = config_.rms_norm_eps,
                     .y = step.a.x});
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    step.layer_idx = i;
    step.layer = &config_.layers[static_cast<size_t>(i)];
    step.weights = &weights_.layers[static_cast<size_t>(i)];
    step.a = views(inputs.ids.dim(0), *step.layer);
    show(step, "input_layernorm", step.a.x);
    attention(step);
    mlp(step);
  }
}

void TextDecoder::attention(const Step& step) {
  const Activations& a = step.a;
  const StepInputs& in = step.inputs;
  const auto layer_idx = static_cast<size_t>(step.layer_idx);
  const int64_t dim = step.layer->head_dim;
  const std::array<ops::LinearTarget, 3> qkv = {{{step.weights->q_proj.get(), a.q},
                                                 {step.weights->k_proj.get(), a.k},
                                                 {step.weights->v_proj.get(), a.v}}};
  backend_.linear({.x = a.x, .targets = qkv});
  const TensorView q = as_heads(a.q, dim);
  const TensorView k = as_heads(a.k, dim);
  const TensorView v = as_heads(a.v, dim);
  const TensorView heads = as_heads(a.attn, dim);
  show(step, "attn.q", q);
  show(step, "attn.k", k);
  show(step, "attn.v", v);
  norm_rope(step, q, step.weights->q_norm, "attn.q_norm", "attn.q_rope");
  norm_rope(step, k, step.weights->k_norm, "attn.k_norm", "attn.k_rope");
  backend_.kv_write({.k = k,
                     .v = v,
                     .positions = in.positions,
                     .sequences = in.sequences,
                     .cache = in.kv[layer_idx],
                     .overflow = in.overflow.slice(step.layer_idx, 1)});
  backend_.attention({.q = q,
                      .positions = in.positions,
                      .sequences = in.sequences,
                      .cache = in.kv[layer_idx],
                      .scale = config_.attention_scale,
                      .window = step.layer->sliding_window,
                      .y = heads});
  show(step, "attn.heads", heads);
  const ops::LinearTarget out = {step.weights->o_proj.get(), a.out};
  backend_.linear({.x = a.attn, .targets = {&out, 1}});
  show(step, "attn.o_proj", a.out);
  add_norm(step, {.post = step.weights->post_attention_layernorm,
                  .post_name = "post_attention_layernorm",
                  .sum_name = "attn.residual",
                  .next = step.weights->pre_feedforward_layernorm,
                  .next_name = "pre_feedforward_layernorm"});
}

void TextDecoder::mlp(const Step& step) {
  const Activations& a = step.a;
  const std::array<ops::LinearTarget, 2> gate_up = {
      {{step.weights->gate_proj.get(), a.gate}, {step.weights->up_proj.get(), a.up}}};
  backend_.linear({.x = a.x, .targets = gate_up});
  show(step, "mlp.gate", a.gate);
  show(step, "mlp.up", a.up);
  const ops::LinearTarget down = {step.weights->down_proj.get(), a.out};
  if (step.trace == nullptr) {
    backend_.gated_linear({.gate = a.gate, .up = a.up, .target = down});
  } else {
    backend_.gelu_mul({.gate = a.gate, .up = a.up, .y = a.gate});
    show(step, "mlp.product", a.gate);
    backend_.linear({.x = a.gate, .targets = {&down, 1}});
  }
  show(step, "mlp.down_proj", a.out);
  // The next layer's norm of the sum is computed with it; after the last layer only the rows that
  // are asked for are normed, by run_head.
  const bool last = step.layer_idx + 1 == config_.num_hidden_layers;
  const auto next = static_cast<size_t>(step.layer_idx + 1);
  add_norm(step, {.post = step.weights->post_feedforward_layernorm,
                  .post_name = "post_feedforward_layernorm",
                  .sum_name = "output",
                  .next = last ? TensorView{} : weights_.layers[next].input_layernorm,
                  .next_name = ""});
}

TensorView TextDecoder::run_head(const TensorView& output_rows, TraceSink* trace) {
  const int64_t rows = output_rows.dim(0);
  const TensorView normed = full_.final.first(rows);
  const TensorView logits = full_.logits.first(rows);
  backend_.gather_rows({.x = full_.residual, .rows = output_rows, .y = normed});
  backend_.rms_norm(
      {.x = normed, .weight = weights_.norm, .eps = config_.rms_norm_eps, .y = normed});
  if (trace != nullptr && trace->wants("final_norm")) trace->show("final_norm", normed);
  const ops::LinearTarget head = {&weights_.head(), logits};
  backend_.linear({.x = normed, .targets = {&head, 1}});
  if (config_.final_logit_softcapping > 0.0F) {
    backend_.soft_cap({.x = logits, .cap = config_.final_logit_softcapping});
  }
  if (trace != nullptr && trace->wants("logits")) trace->show("logits", logits);
  return logits;
}

// x = rope(rms_norm(x)), in place.
void TextDecoder::norm_rope(const Step& step, const TensorView& x, const TensorView& weight,
                            std::string_view norm_name, std::string_view rope_name) {
  const TensorView& table = step.inputs.ropes[static_cast<size_t>(step.layer->rope_idx)];
  if (step.trace == nullptr) {
    backend_.norm_rope({.x = x,
                        .weight = weight,
                        .eps = config_.rms_norm_eps,
                        .positions = step.inputs.positions,
                        .table = table});
    return;
  }
  const TensorView rows = x.reshaped({x.dim(0) * x.dim(1), x.dim(2)});
  backend_.rms_norm({.x = rows, .weight = weight, .eps = config_.rms_norm_eps, .y = rows});
  show(step, norm_name, x);
  backend_.rope({.x = x, .positions = step.inputs.positions, .table = table});
  show(step, rope_name, x);
}

// residual += rms_norm(out, post); x = rms_norm(residual, next), or nothing where next has no data.
void TextDecoder::add_norm(const Step& step, const AddNorm& norm) {
  const Activations& a = step.a;
  const bool has_next = norm.next.data != nullptr;
  if (step.trace == nullptr) {
    backend_.add_rms_norm({.x = a.out,
                           .post_weight = norm.post,
                           .residual = a.residual,
                           .next_weight = norm.next,
                           .eps = config_.rms_norm_eps,
                           .y = has_next ? a.x : TensorView{}});
    return;
  }
  backend_.rms_norm({.x = a.out, .weight = norm.post, .eps = config_.rms_norm_eps, .y = a.out});
  show(step, norm.post_name, a.out);
  backend_.add({.x = a.out, .y = a.residual});
  show(step, norm.sum_name, a.residual);
  if (!has_next) return;
  backend_.rms_norm({.x = a.residual, .weight = norm.next, .eps = config_.rms_norm_eps, .y = a.x});
  if (!norm.next_name.empty()) show(step, norm.next_name, a.x);
}

void TextDecoder::show(const Step& step, std::string_view name, const TensorView& values) const {
  if (step.trace == nullptr) return;
  const std::string full_name =
      step.layer_idx < 0 ? std::string(name) : fmt::format("layer.{}.{}", step.layer_idx, name);
  if (step.trace->wants(full_name)) step.trace->show(full_name, values);
}

}  // namespace markbase::model
