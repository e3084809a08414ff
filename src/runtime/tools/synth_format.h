// How a synthetic model's tensors are stored in each format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/weight_view.h"
#include "runtime/tools/synth_shape.h"
#include "tensor/dtype.h"

namespace markbase::tools {

enum class SynthContainer { kHf, kMlx, kGguf };

struct SynthFormat {
  std::string name;  // "gguf-q4_k_m"
  SynthContainer container = SynthContainer::kHf;
  int bits = 0;  // MLX; 0: not quantised
  int group_size = 0;
  // GGUF: what most matrices are, and what the _m and _s mixes give some.
  quant::Format base = quant::Format::kBF16;
  quant::Format more = quant::Format::kBF16;
  bool medium = false;
  uint32_t file_type = 0;
};

// The names that synth_format takes, in words.
std::string synth_formats();
// "hf-bf16", "mlx-bf16", "mlx-4bit", "mlx-4bit-g64", "gguf-q4_0", ... Errors (kUsage): any other
// name, with the list.
Result<SynthFormat> synth_format(std::string_view name);

// One tensor of a file: what it is called there, and how its bytes are made.
struct StoredTensor {
  enum class Fill { kFloats, kBlocks, kCodes, kScales, kBiases, kValues };
  std::string name;
  std::vector<int64_t> shape;
  tensor::DType dtype = tensor::DType::kBF16;  // safetensors
  uint32_t ggml_type = 0;                      // GGUF
  uint64_t num_bytes = 0;
  Fill fill = Fill::kFloats;
  quant::Format format = quant::Format::kBF16;  // kFloats, kBlocks
  int bits = 0;                                 // kScales, kBiases
  float center = 0;
  float spread = 0;
  std::string seed_name = {};      // scales and biases of a module share it
  std::vector<float> values = {};  // kValues
};

std::vector<StoredTensor> stored_tensors(const SynthShape& shape, const SynthFormat& format);
// The "quantization" object of config.json; null where nothing is quantised.
base::Json mlx_quantization_block(const SynthShape& shape, const SynthFormat& format);

}  // namespace markbase::tools
