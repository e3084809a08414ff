#include "formats/weight_source.h"

#include <filesystem>

#include "formats/broken.h"
#include "formats/gguf/gguf_source.h"
#include "formats/safetensors/safetensors_source.h"

namespace markbase::formats {
namespace {

namespace fs = std::filesystem;

template <class Source>
Result<std::unique_ptr<WeightSource>> widened(Result<std::unique_ptr<Source>> source) {
  if (!source.ok()) return std::move(source).error();
  return std::unique_ptr<WeightSource>(std::move(source).value());
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_weight_source(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return widened(SafetensorsSource::open(path));
  if (path.ends_with(".safetensors")) {
    return broken(path, "path",
                  "the directory that holds config.json and the weights, or a .gguf file",
                  "a single .safetensors file");
  }
  return widened(GgufSource::open(path));
}

}  // namespace markbase::formats
