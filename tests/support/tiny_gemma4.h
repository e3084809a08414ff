// Checkpoints in the shape of each Gemma 4, a few kilobytes each, of zeros: what a file says by its
// names, shapes and configuration, to be changed one thing at a time. Names are written out here as
// the formats have them, not taken from the code under test.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "support/temp_dir.h"
#include "tensor/dtype.h"

namespace markbase::testing {

enum class Gemma4Shape { kE2B, kE4B, k12B, k26B, k31B };
inline constexpr Gemma4Shape kGemma4Shapes[] = {
    Gemma4Shape::kE2B, Gemma4Shape::kE4B, Gemma4Shape::k12B, Gemma4Shape::k26B, Gemma4Shape::k31B};
std::string_view shape_name(Gemma4Shape shape);

struct TinyTensor {
  std::vector<int64_t> shape;  // outermost first
  std::string type;            // "BF16", "U32", "Q8_0", ...
  std::string data;            // empty: zeros
};

struct TinyCheckpoint {
  base::Json config;  // config.json, or GGUF metadata (numbers, bools, strings and arrays of them)
  std::map<std::string, TinyTensor> tensors;

  // Whether any tensor has that name.
  bool has(const std::string& name) const { return tensors.contains(name); }
  void rename(const std::string& from, const std::string& to);
  // Replaces the start of every name that begins with `from`.
  void rename_prefix(const std::string& from, const std::string& to);
  // config.json and model.safetensors in a directory; returns it.
  std::string write_hf(const TempDir& dir) const;
  // A GGUF; returns its path.
  std::string write_gguf(const TempDir& dir) const;
  // In `parts` files with an index, or as a split set; returns what to open.
  std::string write_hf_shards(const TempDir& dir, int parts) const;
  std::string write_gguf_splits(const TempDir& dir, int parts) const;
};

// As ...ForConditionalGeneration: text_config, prefix "model.language_model.", some tower tensors,
// dead K and V weights in the layers that borrow.
TinyCheckpoint tiny_gemma4_hf(Gemma4Shape shape);
// The keys of text_config at the top, prefix "model.".
TinyCheckpoint tiny_gemma4_text(Gemma4Shape shape);
TinyCheckpoint tiny_gemma4_gguf(Gemma4Shape shape);
// The Hugging Face checkpoint with MLX's names, every linear and table quantised (affine), routers
// at 8 bits.
TinyCheckpoint tiny_gemma4_mlx(Gemma4Shape shape, int bits, int group_size);
// One module of an unquantised checkpoint as MLX stores it. mode "affine", "mxfp4", "mxfp8" or
// "nvfp4"; no entry is made in the configuration.
void quantise_module(TinyCheckpoint* checkpoint, const std::string& module, int bits,
                     int group_size, std::string_view mode = "affine");

}  // namespace markbase::testing
