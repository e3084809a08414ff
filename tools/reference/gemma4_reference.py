"""Float32 Gemma 4 text decoder of `transformers` on the weights of any checkpoint, with its trace.

Weights come from Hugging Face safetensors, from MLX files (dequantised by mlx.core.dequantize on
float32 scales) or from GGUF files (dequantised by the gguf package). The scales of the embeddings
follow the file: sqrt(hidden_size) and sqrt(hidden_size_per_layer_input) rounded to the dtype of the
table or of its scales, exact float32 roots for GGUF. Attention and experts are the eager ones.
"""

import contextlib
import json
import pathlib

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers.models.gemma4 import modeling_gemma4
from transformers.models.gemma4_unified import modeling_gemma4_unified

PREFIXES = ("language_model.model.", "model.language_model.", "model.")
TOWERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.", "vision_embedder.")
GGUF_TOP = {
    "token_embd": "embed_tokens", "output_norm": "norm",
    "per_layer_token_embd": "embed_tokens_per_layer",
    "per_layer_model_proj": "per_layer_model_projection",
    "per_layer_proj_norm": "per_layer_projection_norm",
}  # fmt: skip
GGUF_LAYER = {
    "attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight", "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight", "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "layer_output_scale.weight": "layer_scalar", "inp_gate.weight": "per_layer_input_gate.weight",
    "proj.weight": "per_layer_projection.weight", "post_norm.weight": "post_per_layer_input_norm.weight",
    "ffn_gate_inp.weight": "router.proj.weight", "ffn_gate_inp.scale": "router.scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
    "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
    "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
}  # fmt: skip


def empty_model(text):
    """A transformers model of a text_config, float32, its weights not yet set."""
    text = dict(text)
    if text["model_type"] == "gemma4_unified_text":
        module, kind = modeling_gemma4_unified, "Gemma4Unified"
    else:
        module, kind = modeling_gemma4, "Gemma4"
    config = getattr(transformers, f"{kind}TextConfig")(**text)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    config.dtype = torch.float32
    model = getattr(module, f"{kind}ForCausalLM")(config).float().eval()
    return model


def load_state(model, state, table_dtype):
    """Sets all weights ({name inside the decoder: tensor}) and the embedding scales."""
    owned = set(model.model.state_dict())
    shared = {f"layers.{i}." for i, mode in enumerate(model.config.kv_sharing_modes) if mode == "reuse"}
    for name in set(state) - owned:
        dead = name.startswith(tuple(shared)) and ".self_attn.k_" in name or ".self_attn.v_proj" in name
        assert dead, f"{name} is no tensor of this model"
    assert not owned - set(state), owned - set(state)
    model.model.load_state_dict({name: state[name].float() for name in owned}, strict=True)
    model.tie_weights()

    def root(n):
        return torch.tensor(n, dtype=torch.float32).sqrt().to(table_dtype).float()

    model.model.embed_tokens.embed_scale = root(model.config.hidden_size)
    if _ple_width(model.config):
        scale = root(_ple_width(model.config))
        model.model.embed_tokens_per_layer.embed_scale = scale
    assert model.config._attn_implementation == "eager"
    return model


def without_towers(tensors):
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(TOWERS)}


def without_prefix(tensors):
    prefix = next(p for p in PREFIXES if p + "embed_tokens.weight" in tensors)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _ple_width(config):
    return getattr(config, "hidden_size_per_layer_input", None) or 0


def text_of(config):
    return config.get("text_config") or config


def load_hf(path):
    """A directory of Hugging Face files."""
    path = pathlib.Path(path)
    tensors = {}
    for file in sorted(path.glob("model*.safetensors")):
        tensors |= safetensors.torch.load_file(file)
    state = without_prefix(tensors)
    text = text_of(json.loads((path / "config.json").read_text()))
    return load_state(empty_model(text), state, state["embed_tokens.weight"].dtype)


def mlx_parameters(entry, default, path, weight, scales):
    """(group_size, bits, mode) of a quantised module, checked against its shapes. entry: of the module
    alone, or None."""
    mode = default.get("mode", "affine") if entry is None else entry.get("mode", "affine")
    group_size, bits = (entry or default)["group_size"], (entry or default)["bits"]
    assert weight.shape[-1] * 32 // bits == scales.shape[-1] * group_size, path
    return group_size, bits, mode


def load_mlx(path):
    """A directory of MLX files, with the names that mlx-lm writes."""
    import mlx.core as mx

    path = pathlib.Path(path)
    config = json.loads((path / "config.json").read_text())
    tensors = {}
    for file in sorted(path.glob("model*.safetensors")):
        tensors |= mx.load(str(file))
    return _from_mlx(config, tensors, config.get("quantization", {}).get)


def load_mlx_vlm(path):
    """A directory of MLX files of the whole model: names and quantisation entries as mlx-vlm's own
    loader understands them, its old spellings included."""
    import mlx.core as mx
    import mlx_vlm.utils as vlm

    path = pathlib.Path(path)
    config = json.loads((path / "config.json").read_text())
    tensors = {}
    for file in sorted(path.glob("model*.safetensors")):
        tensors |= mx.load(str(file))
    module, _ = vlm.get_model_and_args(config)
    filled = {"audio_config": {}, "vision_config": {}} | config
    model_config = module.ModelConfig.from_dict(filled)
    vlm.update_module_configs(model_config, module, filled, ["text", "vision", "audio"])
    model = module.Model(model_config)
    tensors = model.language_model.sanitize(model.sanitize(tensors))
    block = config.get("quantization", {})
    return _from_mlx(config, tensors, lambda name: vlm._quantization_for_module_path(block, name, model))


def _from_mlx(config, tensors, entry_of):
    import mlx.core as mx

    dequantised, dtypes = {}, {}
    for name, tensor in without_towers(tensors).items():
        module = name.rpartition(".")[0]
        if name.endswith((".scales", ".biases")) and module + ".scales" in tensors:
            continue
        dtypes[name] = tensor.dtype
        scales = tensors.get(module + ".scales") if name.endswith(".weight") else None
        if scales is not None:
            group_size, bits, mode = mlx_parameters(entry_of(module), config["quantization"], module,
                                                    tensor, scales)
            if mode == "affine":
                dtypes[name] = scales.dtype
                biases = tensors[module + ".biases"].astype(mx.float32)
                tensor = mx.dequantize(tensor, scales.astype(mx.float32), biases, group_size, bits)
            else:
                dtypes[name] = mx.bfloat16  # the fp modes have no dtype of their own: the model's
                tensor = mx.dequantize(tensor, scales, group_size=group_size, bits=bits, mode=mode,
                                       dtype=mx.float32)
        dequantised[name] = torch.from_numpy(np.array(tensor.astype(mx.float32)))
    prefix = next(p for p in PREFIXES if p + "embed_tokens.weight" in tensors)
    state = without_prefix(dequantised)
    for name in [n for n in state if n.endswith("switch_glu.gate_proj.weight")]:
        base = name.removesuffix("switch_glu.gate_proj.weight")
        parts = [state.pop(f"{base}switch_glu.{part}_proj.weight") for part in ("gate", "up")]
        state[f"{base}gate_up_proj"] = torch.cat(parts, dim=1)
        state[f"{base}down_proj"] = state.pop(f"{base}switch_glu.down_proj.weight")
    table = {mx.bfloat16: torch.bfloat16, mx.float16: torch.float16, mx.float32: torch.float32}
    dtype = table[dtypes[prefix + "embed_tokens.weight"]]
    return load_state(empty_model(text_of(config)), state, dtype)


def load_gguf(path, text):
    """A GGUF file whose text_config is known: the file's own keys are not read."""
    import gguf

    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if tensor.name == "rope_freqs.weight":
            continue
        if tensor.name.startswith("blk."):
            _, number, rest = tensor.name.split(".", 2)
            name = f"layers.{number}.{GGUF_LAYER[rest]}"
        else:
            name = GGUF_TOP[tensor.name.removesuffix(".weight")] + ".weight"
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    return load_state(empty_model(text), state, torch.float32)


@contextlib.contextmanager
def _kept_ropes(module, calls):
    """While open, every result of the module's rotation is appended to calls."""
    original = module.apply_rotary_pos_emb

    def kept(x, *args, **kwargs):
        y = original(x, *args, **kwargs)
        calls.append(y)
        return y

    module.apply_rotary_pos_emb = kept
    try:
        yield
    finally:
        module.apply_rotary_pos_emb = original


@torch.no_grad()
def logits(model, ids):
    """[n, vocab_size] float32."""
    # Positions as a tensor: the shortcut for a number of them wants per-layer inputs.
    every = torch.arange(len(ids))
    return model(torch.tensor([ids]), use_cache=False, logits_to_keep=every).logits[0].float()


@torch.no_grad()
def run(model, ids):
    """(logits [n, vocab_size], {trace name: [n, ...]})."""
    trace, hooks = {}, []
    count = len(ids)

    def keep(name, value):
        trace[name] = value.detach().reshape(count, *value.shape[2 if value.shape[0] == 1 else 1 :]).clone()

    def on_output(module, name, heads=0):
        def hook(_module, _inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            keep(name, value.reshape(1, count, heads, -1) if heads else value)

        hooks.append(module.register_forward_hook(hook))

    def on_input(module, name, heads=0):
        def hook(_module, inputs):
            keep(name, inputs[0].reshape(1, count, heads, -1) if heads else inputs[0])

        hooks.append(module.register_forward_pre_hook(hook))

    decoder, config = model.model, model.config
    ropes = []
    on_output(decoder.embed_tokens, "embedding")
    on_output(decoder.norm, "final_norm")
    for i, layer in enumerate(decoder.layers):
        at = f"layer.{i}."
        attn = layer.self_attn
        on_output(layer.input_layernorm, at + "input_layernorm")
        nh, kv = config.num_attention_heads, config.num_attention_heads // attn.num_key_value_groups
        on_output(attn.q_proj, at + "attn.q", nh)
        on_output(attn.q_norm, at + "attn.q_norm")
        if not attn.is_kv_shared_layer:
            on_output(attn.k_proj, at + "attn.k", kv)
            if attn.v_proj is not None:
                on_output(attn.v_proj, at + "attn.v", kv)
            on_output(attn.k_norm, at + "attn.k_norm")
            on_output(attn.v_norm, at + "attn.v_norm")
        on_input(attn.o_proj, at + "attn.heads", nh)
        on_output(attn.o_proj, at + "attn.o_proj")
        on_output(layer.post_attention_layernorm, at + "post_attention_layernorm")
        on_input(layer.pre_feedforward_layernorm, at + "attn.residual")
        on_output(layer.pre_feedforward_layernorm, at + "pre_feedforward_layernorm")
        on_output(layer.mlp.gate_proj, at + "mlp.gate")
        on_output(layer.mlp.up_proj, at + "mlp.up")
        on_input(layer.mlp.down_proj, at + "mlp.product")
        on_output(layer.mlp.down_proj, at + "mlp.down_proj")
        if hasattr(layer, "experts"):
            on_output(layer.post_feedforward_layernorm_1, at + "post_feedforward_layernorm_1")
            on_input(layer.router.proj, at + "router.scaled")
            on_output(layer.router.proj, at + "router.scores")
            hooks.append(layer.router.register_forward_hook(_router_hook(trace, at)))
            on_output(layer.pre_feedforward_layernorm_2, at + "pre_feedforward_layernorm_2")
            on_output(layer.experts, at + "experts.output")
            on_output(layer.post_feedforward_layernorm_2, at + "post_feedforward_layernorm_2")
            on_input(layer.post_feedforward_layernorm, at + "experts.sum")
        on_output(layer.post_feedforward_layernorm, at + "post_feedforward_layernorm")
        if _ple_width(config):
            on_output(layer.per_layer_input_gate, at + "ple.gate")
            on_input(layer.per_layer_projection, at + "ple.product")
            on_output(layer.per_layer_projection, at + "ple.projection")
            on_output(layer.post_per_layer_input_norm, at + "post_per_layer_input_norm")
        on_output(layer, at + "output")
    module = modeling_gemma4_unified if "unified" in config.model_type else modeling_gemma4
    if _ple_width(config):
        on_output(decoder.per_layer_projection_norm, "ple.context")
        hooks.append(_ple_hooks(decoder, trace, count, config))
    with _kept_ropes(module, ropes):
        out = logits(model, ids)
    for hook in hooks:
        hook.remove()
    _name_ropes(decoder, ropes, trace)
    _name_residuals(decoder, trace)
    trace["logits"] = out
    return out, trace


def _router_hook(trace, at):
    def hook(_module, _inputs, output):
        trace[at + "router.probs"] = output[0].clone()
        trace[at + "router.weights"] = output[1].clone()

    return hook


def _ple_hooks(decoder, trace, count, config):
    """Per-layer inputs before and after they are combined, [n, layers, width]."""
    original = decoder.project_per_layer_inputs
    shape = (count, config.num_hidden_layers, _ple_width(config))

    def kept(embeds, tokens=None):
        out = original(embeds, tokens)
        trace["ple.tokens"] = tokens[0].reshape(shape).clone()
        trace["ple.inputs"] = out[0].reshape(shape).clone()
        return out

    decoder.project_per_layer_inputs = kept

    class Handle:
        def remove(self):
            decoder.__dict__.pop("project_per_layer_inputs", None)

    return Handle()


def _name_ropes(decoder, ropes, trace):
    calls = iter(ropes)
    for i, layer in enumerate(decoder.layers):
        trace[f"layer.{i}.attn.q_rope"] = next(calls)[0].clone()
        if not layer.self_attn.is_kv_shared_layer:
            trace[f"layer.{i}.attn.k_rope"] = next(calls)[0].clone()
    assert next(calls, None) is None


def _name_residuals(decoder, trace):
    """The sums before a layer's scalar, which no module sees: the same two addends, added again."""
    for i, layer in enumerate(decoder.layers):
        at = f"layer.{i}."
        trace[at + "mlp.residual"] = (
            trace[at + "attn.residual"] + trace[at + "post_feedforward_layernorm"]
        )
        last = "mlp.residual"
        if at + "post_per_layer_input_norm" in trace:
            trace[at + "ple.residual"] = (
                trace[at + "mlp.residual"] + trace[at + "post_per_layer_input_norm"]
            )
            last = "ple.residual"
        scaled = trace[at + last] * layer.layer_scalar
        assert torch.equal(scaled, trace[at + "output"]), at
