#include "runtime/tools/synth_format.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "formats/gguf/gguf_types.h"

namespace markbase::tools {
namespace {

using quant::Format;
using tensor::DType;

struct GgufFormat {
  std::string_view name;
  Format base;
  Format more;
  bool medium;
  uint32_t file_type;
};
constexpr std::array kGgufFormats = {
    GgufFormat{"f32", Format::kF32, Format::kF32, false, 0},
    GgufFormat{"f16", Format::kF16, Format::kF16, false, 1},
    GgufFormat{"bf16", Format::kBF16, Format::kBF16, false, 32},
    GgufFormat{"q4_0", Format::kQ4_0, Format::kQ4_0, false, 2},
    GgufFormat{"q4_1", Format::kQ4_1, Format::kQ4_1, false, 3},
    GgufFormat{"q5_0", Format::kQ5_0, Format::kQ5_0, false, 8},
    GgufFormat{"q5_1", Format::kQ5_1, Format::kQ5_1, false, 9},
    GgufFormat{"q8_0", Format::kQ8_0, Format::kQ8_0, false, 7},
    GgufFormat{"q4_k_s", Format::kQ4_K, Format::kQ5_K, false, 14},
    GgufFormat{"q4_k_m", Format::kQ4_K, Format::kQ6_K, true, 15},
    GgufFormat{"q5_k_s", Format::kQ5_K, Format::kQ5_K, false, 16},
    GgufFormat{"q5_k_m", Format::kQ5_K, Format::kQ6_K, true, 17},
    GgufFormat{"q6_k", Format::kQ6_K, Format::kQ6_K, false, 18},
};
constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroups = {32, 64, 128};
constexpr int kDefaultGroup = 64;
constexpr int kRouterBits = 8;
constexpr int kRouterGroup = 64;

bool is_plain(Format format) {
  return format == Format::kF32 || format == Format::kF16 || format == Format::kBF16;
}

bool is_k_type(Format format) {
  return format == Format::kQ4_K || format == Format::kQ5_K || format == Format::kQ6_K;
}

uint32_t ggml_id(Format format) {
  const std::optional<uint32_t> id = formats::ggml_type_id(quant::format_name(format));
  MB_CHECK(id.has_value());
  return *id;
}

uint64_t num_elements(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t size : shape) n *= static_cast<uint64_t>(size);
  return n;
}

// What llama.cpp's quantiser takes where a row is not whole super-blocks.
Format fitting(Format format, int64_t width) {
  if (!is_k_type(format) || width % 256 == 0) return format;
  if (format == Format::kQ4_K) return Format::kQ5_0;
  return format == Format::kQ5_K ? Format::kQ5_1 : Format::kQ8_0;
}

// The layers to which llama.cpp's _m mixes give more bits.
bool gets_more_bits(int64_t idx, int64_t count) {
  return idx < count / 8 || idx >= 7 * count / 8 || (idx - count / 8) % 3 == 2;
}

// The types that llama.cpp's quantiser gives the tensors of a file; `value_idx` counts v_proj.
Format gguf_format(const SynthTensor& tensor, const SynthFormat& format, const SynthShape& shape,
                   int64_t value_idx, int64_t num_values) {
  if (tensor.role == SynthRole::kVector || tensor.role == SynthRole::kRouter) return Format::kF32;
  if (is_plain(format.base)) return format.base;
  const int64_t width = tensor.shape.back();
  const bool value = tensor.role == SynthRole::kValue;
  const bool down = tensor.role == SynthRole::kDown || tensor.role == SynthRole::kDownExperts;
  const int64_t layers = shape.num_hidden_layers;
  switch (tensor.role) {
    case SynthRole::kPerLayerProjection:
      return Format::kBF16;
    case SynthRole::kTokenTable:  // it is the head too
    case SynthRole::kPerLayerTable:
      return fitting(format.base == Format::kQ8_0 ? Format::kQ8_0 : Format::kQ6_K, width);
    default:
      break;
  }
  constexpr int64_t kFirstValues = 4;  // of the _s mixes
  bool more = false;
  if (format.medium) {
    more = (value && gets_more_bits(value_idx, num_values)) ||
           (down && gets_more_bits(tensor.layer, layers));
  } else {
    more = (value && value_idx < kFirstValues) || (down && tensor.layer < layers / 8);
  }
  return fitting(more ? format.more : format.base, width);
}

StoredTensor plain(const SynthTensor& tensor, std::string name, Format format) {
  StoredTensor stored{.name = std::move(name), .shape = tensor.shape, .format = format};
  const bool is_vector = tensor.role == SynthRole::kVector;
  // A uniform distribution of this standard deviation.
  stored.spread = is_vector ? tensor.spread : tensor.spread * std::sqrt(3.0F);
  stored.center = tensor.center;
  stored.dtype = DType::kBF16;
  stored.ggml_type = ggml_id(format);
  stored.num_bytes = num_elements(tensor.shape) * static_cast<uint64_t>(block_shape(format).bytes);
  stored.seed_name = stored.name;
  return stored;
}

StoredTensor blocks(const SynthTensor& tensor, std::string name, Format format) {
  const quant::BlockShape block = quant::block_shape(format);
  StoredTensor stored{.name = std::move(name), .shape = tensor.shape};
  stored.fill = StoredTensor::Fill::kBlocks;
  stored.format = format;
  stored.ggml_type = ggml_id(format);
  stored.spread = tensor.spread;
  stored.num_bytes = num_elements(tensor.shape) / static_cast<uint64_t>(block.elements) *
                     static_cast<uint64_t>(block.bytes);
  stored.seed_name = stored.name;
  return stored;
}

void add_affine(const SynthTensor& tensor, const std::string& module, int bits, int group_size,
                std::vector<StoredTensor>* out) {
  const int64_t width = tensor.shape.back();
  const auto part = [&](const char* suffix, int64_t last, DType dtype, StoredTensor::Fill fill) {
    StoredTensor stored{.name = module + suffix, .shape = tensor.shape};
    stored.shape.back() = last;
    stored.dtype = dtype;
    stored.fill = fill;
    stored.bits = bits;
    stored.spread = tensor.spread;
    stored.num_bytes = num_elements(stored.shape) * tensor::dtype_bytes(dtype);
    stored.seed_name = fill == StoredTensor::Fill::kCodes ? stored.name : module;
    out->push_back(std::move(stored));
  };
  part(".weight", width * bits / 32, DType::kU32, StoredTensor::Fill::kCodes);
  part(".scales", width / group_size, DType::kBF16, StoredTensor::Fill::kScales);
  part(".biases", width / group_size, DType::kBF16, StoredTensor::Fill::kBiases);
}

struct Affine {
  int bits = 0;  // 0: not quantised
  int group_size = 0;
};

Affine affine_of(const SynthTensor& tensor, const SynthFormat& format) {
  if (format.bits == 0 || tensor.role == SynthRole::kVector) return {};
  if (tensor.shape.back() % format.group_size != 0) return {};
  if (tensor.role == SynthRole::kRouter) return {kRouterBits, kRouterGroup};
  return {format.bits, format.group_size};
}

std::string mlx_prefix(const SynthShape& shape) {
  return shape.gemma4 ? "language_model.model." : "model.";
}

// MLX keeps stacked experts apart by projection.
std::vector<SynthTensor> mlx_parts(const SynthTensor& tensor) {
  if (tensor.role != SynthRole::kGateUpExperts && tensor.role != SynthRole::kDownExperts) {
    return {tensor};
  }
  const std::string base = tensor.hf.substr(0, tensor.hf.rfind('.'));
  std::vector<SynthTensor> parts;
  const bool down = tensor.role == SynthRole::kDownExperts;
  for (const char* name : down ? std::vector{"down_proj"} : std::vector{"gate_proj", "up_proj"}) {
    SynthTensor part = tensor;
    part.hf = fmt::format("{}.switch_glu.{}.weight", base, name);
    if (!down) part.shape[1] /= 2;
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string module_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// Files of Gemma 3 hold norm weights less one, GGUF files do not.
SynthTensor as_in_file(SynthTensor tensor, const SynthShape& shape, const SynthFormat& format) {
  if (!shape.gemma4 && tensor.role == SynthRole::kVector &&
      format.container != SynthContainer::kGguf) {
    tensor.center -= 1.0F;
  }
  return tensor;
}

std::vector<StoredTensor> hf_tensors(const SynthShape& shape, const SynthFormat& format) {
  const std::string prefix = shape.gemma4 ? "model.language_model." : "model.";
  const std::vector<SynthTensor> tensors = synth_tensors(shape);
  std::vector<StoredTensor> stored;
  stored.reserve(tensors.size());
  for (const SynthTensor& tensor : tensors) {
    stored.push_back(plain(as_in_file(tensor, shape, format), prefix + tensor.hf, Format::kBF16));
  }
  return stored;
}

std::vector<StoredTensor> mlx_tensors(const SynthShape& shape, const SynthFormat& format) {
  std::vector<StoredTensor> stored;
  for (const SynthTensor& whole : synth_tensors(shape)) {
    if (whole.dead) continue;
    for (const SynthTensor& tensor : mlx_parts(as_in_file(whole, shape, format))) {
      const std::string name = mlx_prefix(shape) + tensor.hf;
      const Affine affine = affine_of(tensor, format);
      if (affine.bits == 0) {
        stored.push_back(plain(tensor, name, Format::kBF16));
      } else {
        add_affine(tensor, module_of(name), affine.bits, affine.group_size, &stored);
      }
    }
  }
  return stored;
}

std::vector<StoredTensor> gguf_tensors(const SynthShape& shape, const SynthFormat& format) {
  const std::vector<SynthTensor> tensors = synth_tensors(shape);
  const auto is_value = [](const SynthTensor& t) { return t.role == SynthRole::kValue; };
  const int64_t num_values = std::count_if(tensors.begin(), tensors.end(), is_value);
  int64_t value_idx = 0;
  std::vector<StoredTensor> stored;
  for (const SynthTensor& tensor : tensors) {
    const Format type = gguf_format(tensor, format, shape, value_idx, num_values);
    stored.push_back(is_plain(type) ? plain(tensor, tensor.gguf, type)
                                    : blocks(tensor, tensor.gguf, type));
    if (is_value(tensor)) ++value_idx;
  }
  if (const std::vector<float> freqs = synth_rope_freqs(shape); !freqs.empty()) {
    StoredTensor rope{.name = "rope_freqs.weight",
                      .shape = {static_cast<int64_t>(freqs.size())},
                      .ggml_type = ggml_id(Format::kF32)};
    rope.num_bytes = freqs.size() * sizeof(float);
    rope.fill = StoredTensor::Fill::kValues;
    rope.values = freqs;
    stored.push_back(std::move(rope));
  }
  return stored;
}

}  // namespace

std::string synth_formats() {
  std::vector<std::string_view> gguf;
  for (const GgufFormat& entry : kGgufFormats) gguf.push_back(entry.name);
  return fmt::format("hf-bf16, mlx-bf16, mlx-Nbit[-gG] with N of {} and G of {}, and gguf- with {}",
                     fmt::join(kBits, " "), fmt::join(kGroups, " "), fmt::join(gguf, " "));
}

Result<SynthFormat> synth_format(std::string_view name) {
  SynthFormat format;
  format.name = name;
  if (name == "hf-bf16") return format;
  format.container = SynthContainer::kMlx;
  if (name == "mlx-bf16") return format;
  for (const int bits : kBits) {
    format.bits = bits;
    for (const int group_size : kGroups) {
      format.group_size = group_size;
      const std::string without_group = fmt::format("mlx-{}bit", bits);
      if (name == fmt::format("{}-g{}", without_group, group_size)) return format;
      if (name == without_group && group_size == kDefaultGroup) return format;
    }
  }
  format.container = SynthContainer::kGguf;
  for (const GgufFormat& entry : kGgufFormats) {
    // As llama.cpp's quantiser, which takes q4_k for q4_k_m.
    const bool short_name = entry.medium && name == fmt::format("gguf-{}", entry.name.substr(0, 4));
    if (!short_name && name != fmt::format("gguf-{}", entry.name)) continue;
    format.base = entry.base;
    format.more = entry.more;
    format.medium = entry.medium;
    format.file_type = entry.file_type;
    return format;
  }
  return base::usage_error("--to: '{}' is not a format; there are {}", name, synth_formats());
}

std::vector<StoredTensor> stored_tensors(const SynthShape& shape, const SynthFormat& format) {
  switch (format.container) {
    case SynthContainer::kHf:
      return hf_tensors(shape, format);
    case SynthContainer::kMlx:
      return mlx_tensors(shape, format);
    case SynthContainer::kGguf:
      break;
  }
  return gguf_tensors(shape, format);
}

base::Json mlx_quantization_block(const SynthShape& shape, const SynthFormat& format) {
  if (format.bits == 0) return nullptr;
  base::Json block = {{"group_size", format.group_size}, {"bits", format.bits}, {"mode", "affine"}};
  for (const SynthTensor& tensor : synth_tensors(shape)) {
    if (tensor.role != SynthRole::kRouter || affine_of(tensor, format).bits == 0) continue;
    block[module_of(mlx_prefix(shape) + tensor.hf)] = {{"group_size", kRouterGroup},
                                                       {"bits", kRouterBits}};
  }
  return block;
}

}  // namespace markbase::tools
