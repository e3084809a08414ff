// The one place that knows tensor names: those of Hugging Face, MLX and GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/weight_source.h"
#include "markbase/result.h"
#include "model/config.h"
#include "quant/weight_view.h"

namespace markbase::model {

enum class WeightId : uint8_t {
  kEmbedTokens,
  kLmHead,
  kNorm,
  kInputLayernorm,
  kPostAttentionLayernorm,
  kPreFeedforwardLayernorm,
  kPostFeedforwardLayernorm,
  kQProj,
  kKProj,
  kVProj,
  kOProj,
  kQNorm,
  kKNorm,
  kGateProj,
  kUpProj,
  kDownProj,
  // Per-layer embeddings.
  kEmbedTokensPerLayer,  // [vocab_size_per_layer_input, layers * width]: looked up, never packed
  kPerLayerModelProjection,  // [layers * width, hidden_size]
  kPerLayerProjectionNorm,   // [width]
  kPerLayerInputGate,        // [width, hidden_size], in a layer
  kPerLayerProjection,       // [hidden_size, width], in a layer
  kPostPerLayerInputNorm,    // [hidden_size], in a layer
  kLayerScalar,              // [1], in a layer
  // Experts, in a layer. Each expert's matrices are weights of their own (MappedWeight::expert).
  kRouterProj,                 // [num_experts, hidden_size]
  kRouterScale,                // [hidden_size]
  kPerExpertScale,             // [num_experts]
  kExpertGateProj,             // [moe_intermediate_size, hidden_size]
  kExpertUpProj,               // [moe_intermediate_size, hidden_size]
  kExpertDownProj,             // [hidden_size, moe_intermediate_size]
  kPostFeedforwardLayernorm1,  // [hidden_size], after the dense branch
  kPreFeedforwardLayernorm2,   // [hidden_size], before the experts
  kPostFeedforwardLayernorm2,  // [hidden_size], after the experts
};

// A tensor of the file with its place in the model.
struct MappedWeight {
  WeightId id = WeightId::kNorm;
  int64_t layer = -1;       // -1: belongs to no layer
  int64_t expert = -1;      // -1: belongs to no expert
  bool is_vector = false;   // a norm weight: view has one row
  std::string name;         // ours: "layer.3.attn.q_proj", "layer.3.experts.17.gate_proj"
  std::string source_name;  // the file's tensor or module
  quant::WeightView view;   // into the mapping
};

struct UnusedTensor {
  std::string name;
  std::string why;
  bool known = true;  // false: nothing we know has this name
  // Of those: it stands in a layer or in a module that is used, and is a fault. Any other belongs
  // to a part of the file that text does not need.
  bool in_decoder = false;
};

// Something about a file that is not as it should be.
struct Fault {
  std::string what;
  std::string where;
  std::string expected;
  std::string got;
};
std::string fault_message(const Fault& fault);

struct WeightMap {
  std::vector<MappedWeight> weights;  // embedding, head, final norm, then layer by layer
  std::vector<UnusedTensor> unused;
  bool tied_head = true;
  float embed_scale = 1.0F;  // sqrt(hidden_size), rounded to the dtype of the table (not in a GGUF)
  float per_layer_embed_scale = 1.0F;  // sqrt(hidden_size_per_layer_input) by the same rule
  float norm_offset = 0.0F;            // 1 where the file holds norm weights less one
};

// Every weight that `config` asks for, its shape compared with the config. What is missing, of
// another shape, or in the decoder without a place there (a bias, a layer past the last) is added
// to `faults`; the map holds the rest.
WeightMap map_weights(const formats::WeightSource& source, const TextConfig& config,
                      std::vector<Fault>* faults);
// The same, the first fault as an error (kBadInput).
Result<WeightMap> map_weights(const formats::WeightSource& source, const TextConfig& config);

}  // namespace markbase::model
