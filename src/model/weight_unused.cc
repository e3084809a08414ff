#include "model/weight_unused.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace markbase::model {
namespace {

constexpr const char* kVision =
    "vision is not supported by this build: the text part is used alone";
constexpr const char* kAudio = "audio is not supported by this build: the text part is used alone";

bool contains_any(std::string_view name, std::span<const std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

bool starts_with_any(std::string_view name, std::span<const std::string_view> starts) {
  for (const std::string_view start : starts) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// The N of "layers.N." or "blk.N.".
std::optional<int64_t> layer_of(std::string_view name) {
  for (const std::string_view mark : {"layers.", "blk."}) {
    const size_t at = name.find(mark);
    if (at == std::string_view::npos) continue;
    const char* begin = name.data() + at + mark.size();
    const char* end = name.data() + name.size();
    int64_t layer = 0;
    const auto [stop, error] = std::from_chars(begin, end, layer);
    if (error == std::errc() && stop != end && *stop == '.') return layer;
  }
  return std::nullopt;
}

// Keys and values of a layer that attends to another's.
const LayerConfig* borrower(const TextConfig& config, std::string_view name) {
  constexpr std::array<std::string_view, 6> kOwn = {"self_attn.k_proj", "self_attn.v_proj",
                                                    "self_attn.k_norm", "attn_k.",
                                                    "attn_v.",          "attn_k_norm."};
  if (!contains_any(name, kOwn)) return nullptr;
  const std::optional<int64_t> idx = layer_of(name);
  if (!idx || *idx < 0 || *idx >= config.num_hidden_layers) return nullptr;
  const LayerConfig& layer = config.layers[static_cast<size_t>(*idx)];
  return layer.owns_kv() ? nullptr : &layer;
}

std::string reason(const TextConfig& config, std::string_view name) {
  constexpr std::array<std::string_view, 2> kRotary = {"rotary_emb", "rope_freqs"};
  constexpr std::array<std::string_view, 3> kAudioParts = {"audio_tower", "embed_audio",
                                                           "audio_model"};
  constexpr std::array<std::string_view, 3> kVisionParts = {"vision", "multi_modal_projector",
                                                            "mm_projector"};
  constexpr std::array<std::string_view, 2> kAudioStarts = {"a.", "mm.a."};
  constexpr std::array<std::string_view, 2> kVisionStarts = {"v.", "mm."};
  constexpr std::array<std::string_view, 4> kClips = {".input_min", ".input_max", ".output_min",
                                                      ".output_max"};
  if (contains_any(name, kRotary)) return "rotary frequencies are computed from the configuration";
  if (name.find("lm_head.") != std::string_view::npos)
    return "the head is tied to the embedding table";
  if (contains_any(name, kAudioParts) || starts_with_any(name, kAudioStarts)) return kAudio;
  if (contains_any(name, kVisionParts) || starts_with_any(name, kVisionStarts)) return kVision;
  if (std::any_of(kClips.begin(), kClips.end(), [&](auto end) { return name.ends_with(end); }))
    return "products are clipped in the towers alone";
  if (const LayerConfig* layer = borrower(config, name)) {
    return fmt::format("the layer attends to the K and V of layer {}", layer->kv_source_idx);
  }
  return "";
}

}  // namespace

UnusedTensor why_unused(const TextConfig& config, std::string_view tensor) {
  std::string why = reason(config, tensor);
  const bool known = !why.empty();
  const std::optional<int64_t> layer = known ? std::nullopt : layer_of(tensor);
  if (layer && *layer >= config.num_hidden_layers) {
    why = fmt::format("one of layer {}, in a model of {} layers", *layer, config.num_hidden_layers);
  } else if (!known) {
    why = "not a tensor of this architecture";
  }
  return {std::string(tensor), std::move(why), known};
}

}  // namespace markbase::model
