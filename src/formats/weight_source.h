// WeightSource: named tensors and metadata of a checkpoint, whatever file kind holds them.
//
// Tensor names are those of the file; model/weight_map alone gives them meaning. Bytes stay in the
// mapping and are valid while the source lives. Thread safe after construction.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "markbase/result.h"
#include "quant/weight_view.h"
#include "tensor/dtype.h"

namespace markbase::formats {

enum class FileKind : uint8_t { kGguf, kSafetensors };

// One tensor of the file. `shape` outermost first (a GGUF ne list reversed).
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  std::string type_name;            // as the file spells it: "Q4_K", "BF16", "U32"
  std::span<const std::byte> data;  // exactly the tensor's bytes, checked against the mapping
  int file_idx = 0;                 // which file of the set
  // One of these says what the bytes are: `block_format` for GGUF types and floats, `dtype` for the
  // rest.
  std::optional<quant::Format> block_format;
  std::optional<tensor::DType> dtype;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual FileKind kind() const = 0;
  // In file order.
  virtual std::span<const TensorInfo> tensors() const = 0;
  // nullptr when there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // The model configuration: config.json for safetensors; for GGUF an object of all metadata keys
  // ("gemma3.block_count": 18, arrays as JSON arrays). Arrays of more than 4096 elements
  // (vocabularies) stand as {"array": "string", "count": n}: gguf/gguf_file.h reads those without
  // copying.
  virtual const base::Json& config() const = 0;
  // What is odd about the files without standing in the way of reading them, each a whole message.
  virtual std::span<const std::string> remarks() const { return {}; }
  // Paths of the files behind it, for messages.
  virtual std::span<const std::string> files() const = 0;
  // ... and in what state they were opened.
  virtual std::vector<base::FileIdentity> identities() const = 0;

  // The module `name` (without ".weight" for safetensors: "model.layers.0.mlp.up_proj"; the whole
  // tensor name for GGUF) as a 2-D weight: joins weight, scales and biases of MLX, flattens leading
  // axes. Errors: kBadInput naming file, tensor, expected and got shapes or an unsupported type.
  virtual Result<quant::WeightView> weight(std::string_view name) const = 0;

  // The pages behind these bytes are not needed any more / will be needed soon.
  virtual void release(std::span<const std::byte> bytes) const = 0;
  virtual void prefetch(std::span<const std::byte> bytes) const = 0;
  // kBadInput when a file was truncated under us since it was opened.
  virtual Result<void> check_intact() const = 0;
};

// Opens a directory (config.json + safetensors, with or without an index) or a .gguf file (any
// split of a set). Reads headers only. Every offset, size and shape is checked against the bytes
// that are there.
Result<std::unique_ptr<WeightSource>> open_weight_source(const std::string& path);

}  // namespace markbase::formats
