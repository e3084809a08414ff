// Small random Gemma 4 decoders in memory, loaded as one from a file is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weight_map.h"
#include "runtime/loaded_model.h"

namespace markbase::testing {

enum class DecoderShape : uint8_t {
  kPerLayerInputs,  // as E2B: per-layer embeddings, shared keys and values, shared layers twice
                    // wide
  kExperts,         // as 26B: V made from K in full layers, experts beside the dense branch
  kKeysAreValues,   // as 31B
  kOddSources,      // shared keys and values whose sources are not the last two layers before
  kSharedKeys,      // as E4B: per-layer embeddings, shared keys and values, one width
  kOneGlobalHead,   // as 12B: V made from K in full layers, one head of keys there
};
inline constexpr DecoderShape kDecoderShapes[] = {
    DecoderShape::kPerLayerInputs, DecoderShape::kExperts,    DecoderShape::kKeysAreValues,
    DecoderShape::kOddSources,     DecoderShape::kSharedKeys, DecoderShape::kOneGlobalHead};
std::string decoder_shape_name(DecoderShape shape);

class RandomDecoder {
 public:
  static constexpr int64_t kWindow = 20;
  static constexpr int64_t kVocab = 301;

  // Matrices in `format`: plain floats, or blocks of 32 that quant::encode_row knows.
  // table_rows: of the per-layer embeddings, where the shape has any. window: of sliding layers.
  RandomDecoder(DecoderShape shape, quant::Format format, int64_t table_rows = kVocab,
                int64_t window = kWindow);

  const model::TextConfig& config() const { return config_; }
  const model::WeightMap& map() const { return map_; }
  // Aborts where it cannot be loaded. This outlives the result.
  std::unique_ptr<runtime::LoadedModel> load(const EngineOptions& options,
                                             const runtime::RunnerOptions& runner) const;

 private:
  void set_shape(DecoderShape shape);
  void add_layer(const model::LayerConfig& layer, int64_t layer_idx);
  void add_matrix(model::WeightId id, int64_t layer, int64_t expert, int64_t rows, int64_t cols,
                  float scale);
  void add_vector(model::WeightId id, int64_t layer, int64_t width, float spread);
  void add(model::WeightId id, int64_t layer, int64_t expert, quant::Format format, int64_t rows,
           int64_t cols, const std::vector<float>& values);

  model::TextConfig config_;
  model::WeightMap map_;
  quant::Format format_;
  int64_t table_rows_;
  int64_t window_;
  uint64_t seed_ = 7;
  std::deque<std::vector<std::byte>> bytes_;
};

}  // namespace markbase::testing
