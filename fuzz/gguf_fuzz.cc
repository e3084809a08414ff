// Any bytes as a GGUF file: parsed, every long array read, every weight joined and decoded.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "formats/gguf/gguf_source.h"
#include "quant/weight_view.h"

using namespace markbase;

namespace {

void read_all(const formats::GgufSource& source) {
  static_cast<void>(base::dump_json(source.config()));
  for (const auto& item : source.config().items()) {
    static_cast<void>(source.parts()[0].string_array(item.key()));
    static_cast<void>(source.parts()[0].float_array(item.key()));
    static_cast<void>(source.parts()[0].integer_array(item.key()));
  }
  for (const formats::TensorInfo& tensor : source.tensors()) {
    const auto weight = source.weight(tensor.name);
    if (!weight.ok()) continue;
    std::vector<float> row(static_cast<size_t>(weight->cols));
    quant::decode_row(*weight, 0, row);
    quant::decode_row(*weight, weight->rows - 1, row);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto file = formats::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
  if (!file.ok()) return 0;
  std::vector<formats::GgufFile> files;
  files.push_back(*std::move(file));
  const auto source = formats::GgufSource::make(std::move(files));
  if (source.ok()) read_all(**source);
  return 0;
}
