// Tensor names: ours, and those of Hugging Face, MLX and GGUF files.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "formats/weight_source.h"
#include "model/weight_map.h"

namespace markbase::model {

// Which models and layers have a tensor.
enum class Presence : uint8_t {
  kAlways,
  kUntiedHead,
  kOwnKeys,    // layers that own their K and V
  kOwnValues,  // ... and make V from a projection of its own
  kScalar,     // of a layer; may be missing from a GGUF: 1
  kPerLayerEmbeddings,
  kExperts,
  kExpertScale,  // with experts; may be missing from a GGUF: 1
};

struct NameRow {
  WeightId id;
  Presence presence;
  bool in_layer;
  bool is_vector;
  const char* ours;
  const char* hf;    // after the prefix of the decoder, or of the layer
  const char* gguf;  // after "blk.N." within a layer
};

// Every weight but those of single experts.
std::span<const NameRow> weight_names();

// How a file spells names.
class NameScheme {
 public:
  explicit NameScheme(const formats::WeightSource& source);

  bool is_gguf() const { return gguf_; }
  // The whole tensor name.
  std::string tensor(const NameRow& row, int64_t layer) const;
  // "blk." or "model.layers."
  std::string all_layers() const;
  // "blk.3." or "model.layers.3."
  std::string layer_prefix(int64_t layer) const;

 private:
  bool gguf_ = false;
  std::string prefix_ = "model.";
};

// The tensors that may hold one kind of expert matrix, the most usual first. `rows_before` and
// `parts`: the matrix is part `rows_before` of `parts` equal ones that stand under each other.
struct ExpertName {
  const char* name;  // after the layer's prefix; without ".weight" where the file has both forms
  int part;
  int parts;
};
struct ExpertRow {
  WeightId id;
  const char* ours;  // "gate_proj"
  std::array<ExpertName, 2> hf;
  std::array<ExpertName, 2> gguf;
};
std::span<const ExpertRow> expert_names();

}  // namespace markbase::model
