// Any bytes as a safetensors file beside an MLX config, and as an index: parsed, every weight
// joined and decoded.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/safetensors/safetensors_header.h"
#include "formats/safetensors/safetensors_source.h"
#include "quant/weight_view.h"

using namespace markbase;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static_cast<void>(
      formats::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "index.json"));
  auto file =
      formats::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!file.ok()) return 0;
  std::vector<formats::SafetensorsFile> files;
  files.push_back(*std::move(file));
  base::Json config = {{"quantization",
                        {{"bits", 4},
                         {"group_size", 32},
                         {"p", {{"bits", 3}, {"group_size", 64}}},
                         {"m4", {{"mode", "mxfp4"}}},
                         {"m8", {{"mode", "mxfp8"}}},
                         {"n4", {{"mode", "nvfp4"}}}}}};
  const auto source =
      formats::SafetensorsSource::make(std::move(files), std::move(config), "config.json");
  if (!source.ok()) return 0;
  for (const formats::TensorInfo& tensor : (*source)->tensors()) {
    const auto weight = (*source)->weight(tensor.name);
    if (!weight.ok()) continue;
    std::vector<float> row(static_cast<size_t>(weight->cols));
    quant::decode_row(*weight, 0, row);
    quant::decode_row(*weight, weight->rows - 1, row);
  }
  return 0;
}
