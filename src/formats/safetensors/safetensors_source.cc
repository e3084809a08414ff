#include "formats/safetensors/safetensors_source.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "formats/broken.h"
#include "formats/byte_reader.h"
#include "formats/safetensors/safetensors_header.h"

namespace markbase::formats {
namespace {

namespace fs = std::filesystem;
using base::Json;
using tensor::DType;

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// A link that leads nowhere is there too: opening it then says so, instead of doing without.
bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::string join(const std::string& directory, std::string_view name) {
  return (fs::path(directory) / name).string();
}

Result<Json> read_config(const std::string& path, const std::string& directory) {
  if (!exists(path)) {
    return base::bad_input(
        "no config.json in {}: expected a model directory (config.json, *.safetensors) "
        "or a .gguf file, got a directory without one",
        directory);
  }
  MB_ASSIGN(const base::MappedFile file, base::MappedFile::open(path));
  const std::string_view text = as_text(file.bytes());
  if (auto error = not_a_checkpoint(path, text, "a JSON object")) return *error;
  MB_ASSIGN(Json config, base::parse_json(text, path));
  MB_TRY(file.check_intact());
  if (!config.is_object()) return broken(path, "file", "a JSON object", config.type_name());
  return config;
}

// A file name of the directory itself: nothing in an index may point elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

struct FileList {
  std::vector<std::string> names;
  WeightMap weight_map;  // empty without an index
};

Result<FileList> read_index(const std::string& directory, const std::string& index_path) {
  FileList list;
  MB_ASSIGN(const base::MappedFile file, base::MappedFile::open(index_path));
  const std::string_view text = as_text(file.bytes());
  if (auto error = not_a_checkpoint(index_path, text, "a JSON object")) return *error;
  MB_ASSIGN(list.weight_map, parse_safetensors_index(text, index_path));
  MB_TRY(file.check_intact());
  if (list.weight_map.empty())
    return broken(index_path, "weight_map", "at least one tensor", "none");
  std::unordered_set<std::string_view> seen;
  for (const auto& [tensor, name] : list.weight_map) {
    if (!seen.insert(name).second) continue;
    const std::string what = "weight_map, tensor " + shown(tensor);
    if (!is_plain_name(name)) {
      return broken(index_path, what, "a file name without \"/\" or \"..\"", shown(name));
    }
    if (!exists(join(directory, name))) {
      return broken(index_path, what, "the file " + shown(name) + " in " + directory,
                    "no such file");
    }
    list.names.push_back(name);
  }
  std::sort(list.names.begin(), list.names.end());
  return list;
}

// "model-00002-of-00003.safetensors": the place of "00002" in the name, npos for any other name.
size_t shard_number(std::string_view name) {
  constexpr std::string_view kForm = "-#####-of-#####.safetensors";
  if (name.size() < kForm.size()) return std::string_view::npos;
  const size_t start = name.size() - kForm.size();
  for (size_t i = 0; i < kForm.size(); ++i) {
    const char c = name[start + i];
    const bool digit = c >= '0' && c <= '9';
    if (kForm[i] == '#' ? !digit : c != kForm[i]) return std::string_view::npos;
  }
  return start + 1;
}

// Without an index the names alone say how many shards there are.
Result<void> check_shard_numbers(const std::string& directory,
                                 const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const size_t at = shard_number(name);
    if (at == std::string::npos) continue;
    const int count = std::stoi(name.substr(at + 9, 5));
    for (int i = 1; i <= count; ++i) {
      const std::string shard = name.substr(0, at) + fmt::format("{:05}", i) + name.substr(at + 5);
      if (exists(join(directory, shard))) continue;
      return broken(join(directory, name), "shards",
                    fmt::format("all {} beside it, {} among them", count, shown(shard)),
                    "no such file");
    }
  }
  return {};
}

Result<FileList> list_files(const std::string& directory) {
  const std::string index_path = join(directory, kIndexName);
  if (exists(index_path)) return read_index(directory, index_path);
  FileList list;
  if (exists(join(directory, kSingleName))) {
    list.names.push_back(kSingleName);
    return list;
  }
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors")
      list.names.push_back(it->path().filename().string());
  }
  if (error) return base::bad_input("{}: cannot be listed: {}", directory, error.message());
  if (list.names.empty())
    return broken(directory, "weights", "at least one *.safetensors file", "none");
  std::sort(list.names.begin(), list.names.end());
  MB_TRY(check_shard_numbers(directory, list.names));
  return list;
}

// One message for each shard with tensors that the index does not name.
std::vector<std::string> unnamed_tensors(const SafetensorsSource& source,
                                         const WeightMap& weight_map) {
  std::unordered_set<std::string_view> named;
  for (const auto& [name, file] : weight_map) named.insert(name);
  std::vector<std::string> out;
  if (weight_map.empty()) return out;
  for (const SafetensorsFile& part : source.parts()) {
    std::vector<std::string_view> unnamed;
    for (const TensorInfo& tensor : part.tensors()) {
      if (!named.contains(tensor.name)) unnamed.push_back(tensor.name);
    }
    if (unnamed.empty()) continue;
    out.push_back(broken(part.path(), kIndexName, "every tensor of the shard in its weight_map",
                         fmt::format("{} that it does not name, {} first", unnamed.size(),
                                     shown(unnamed.front())))
                      .message);
  }
  return out;
}

Result<void> check_weight_map(const SafetensorsSource& source, const std::string& directory,
                              const WeightMap& weight_map) {
  for (const auto& [name, file] : weight_map) {
    const TensorInfo* tensor = source.find(name);
    const std::string path = join(directory, file);
    if (tensor == nullptr || source.files()[static_cast<size_t>(tensor->file_idx)] != path) {
      return broken(join(directory, kIndexName), "weight_map, tensor " + shown(name),
                    "the tensor to be in " + path, "no such tensor there");
    }
  }
  return {};
}

std::string module_of(std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  return std::string(name);
}

}  // namespace

Result<std::unique_ptr<SafetensorsSource>> SafetensorsSource::open(const std::string& directory) {
  const std::string config_path = join(directory, kConfigName);
  MB_ASSIGN(Json config, read_config(config_path, directory));
  MB_ASSIGN(const FileList list, list_files(directory));
  std::vector<SafetensorsFile> files;
  for (const std::string& name : list.names) {
    MB_ASSIGN(SafetensorsFile file, SafetensorsFile::open(join(directory, name)));
    files.push_back(std::move(file));
  }
  MB_ASSIGN(std::unique_ptr<SafetensorsSource> source,
            make(std::move(files), std::move(config), config_path));
  MB_TRY(check_weight_map(*source, directory, list.weight_map));
  source->remarks_ = unnamed_tensors(*source, list.weight_map);
  return source;
}

Result<std::unique_ptr<SafetensorsSource>> SafetensorsSource::make(
    std::vector<SafetensorsFile> files, Json config, const std::string& config_path) {
  auto source = std::make_unique<SafetensorsSource>();
  source->parts_ = std::move(files);
  for (const SafetensorsFile& part : source->parts_) {
    source->add_file(part.path(), part.tensors(), part.mapping());
  }
  MB_TRY(source->index_tensors());
  MB_ASSIGN(source->quantization_, MlxQuantization::from_config(config, config_path));
  source->config_ = std::move(config);
  source->config_path_ = config_path;
  return source;
}

Error SafetensorsSource::no_such_weight(const std::string& module) const {
  const std::string where = files().empty() ? config_path_ : files()[0];
  for (const char* suffix : {".weight_packed", ".qweight"}) {
    const TensorInfo* packed = find(module + suffix);
    if (packed == nullptr) continue;
    return broken(file_of(*packed), "module " + shown(module),
                  "floats or the MLX affine format (.weight, .scales, .biases)",
                  fmt::format("the packed format of \"{}\", which is not supported", suffix));
  }
  return broken(where, "tensor " + shown(module + ".weight"), "to be in the checkpoint",
                "no such tensor");
}

Result<quant::WeightView> SafetensorsSource::weight(std::string_view name) const {
  const std::string module = module_of(name);
  const TensorInfo* weight = find(module + ".weight");
  if (weight == nullptr) {
    weight = find(name);
    if (weight == nullptr) return no_such_weight(module);
    // Stacked experts have no suffix; mlx-vlm reads packed ones too that have none.
    const bool packed = weight->dtype == DType::kU32 && find(module + ".scales") != nullptr;
    if (!packed) return plain_weight(*weight);
  }
  if (const TensorInfo* scales = find(module + ".scales"))
    return mlx_weight(module, *weight, *scales);
  for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
    if (find(module + suffix) == nullptr) continue;
    return broken(
        file_of(*weight), "module " + shown(module), "a weight that stands alone",
        fmt::format("{} scaled by \"{}\", which is not supported", weight->type_name, suffix));
  }
  if (weight->dtype == DType::kU32) {
    return broken(file_of(*weight), "module " + shown(module), "scales beside its packed words",
                  "none");
  }
  return plain_weight(*weight);
}

Result<quant::WeightView> SafetensorsSource::mlx_weight(const std::string& module,
                                                        const TensorInfo& weight,
                                                        const TensorInfo& scales) const {
  const std::string what = "module " + shown(module);
  const std::string& path = file_of(weight);
  if (!quantization_.present()) {
    return broken(config_path_, what, "a quantization block, since the module has scales", "none");
  }
  const MlxModuleParams& params = quantization_.of(module);
  if (weight.dtype != DType::kU32)
    return broken(path, what, "packed words of U32", weight.type_name);
  quant::WeightView view;
  if (params.mode == "affine") {
    MB_TRY(affine_parts(module, scales, &view));
  } else {
    MB_TRY(float_parts(module, params, scales, &view));
  }
  if (weight.data.empty() || scales.data.empty() || weight.shape.size() < 2 ||
      weight.shape.size() != scales.shape.size() ||
      !std::equal(weight.shape.begin(), weight.shape.end() - 1, scales.shape.begin())) {
    return broken(path, what, "weight and scales that agree in all axes but the last",
                  fmt::format("{} and {}", shape_text(weight.shape), shape_text(scales.shape)));
  }
  const RowsCols words = flattened(weight.shape);
  const RowsCols groups = flattened(scales.shape);
  // Both counts come from bytes that are in the file, so these products stay far below 2^63.
  const int64_t cols = groups.cols * params.group_size;
  if (cols * params.bits != words.cols * 32) {
    return broken(
        path, what,
        fmt::format("{} words a row for {} groups of {} at {} bits, as {} says",
                    static_cast<double>(cols * params.bits) / 32, groups.cols, params.group_size,
                    params.bits, config_path_),
        fmt::format("weight {} and scales {}", shape_text(weight.shape), shape_text(scales.shape)));
  }
  view.rows = words.rows;
  view.cols = cols;
  view.data = weight.data;
  view.bits = params.bits;
  view.group_size = params.group_size;
  view.scales = scales.data;
  MB_TRY(quant::validate(view, fmt::format("{}: {}", path, what)));
  return view;
}

Result<void> SafetensorsSource::affine_parts(const std::string& module, const TensorInfo& scales,
                                             quant::WeightView* view) const {
  const std::string what = "module " + shown(module);
  const std::string& path = file_of(scales);
  const TensorInfo* biases = find(module + ".biases");
  if (biases == nullptr) return broken(path, what, "biases beside its scales", "none");
  const bool floats =
      scales.type_name == "F32" || scales.type_name == "F16" || scales.type_name == "BF16";
  if (!floats) return broken(path, what, "scales of F32, F16 or BF16", scales.type_name);
  if (biases->type_name != scales.type_name || biases->shape != scales.shape) {
    return broken(
        path, what,
        fmt::format("biases like the scales, {} {}", scales.type_name, shape_text(scales.shape)),
        fmt::format("{} {}", biases->type_name, shape_text(biases->shape)));
  }
  view->format = quant::Format::kAffine;
  view->scale_dtype = scales.type_name == "F32"   ? DType::kF32
                      : scales.type_name == "F16" ? DType::kF16
                                                  : DType::kBF16;
  view->biases = biases->data;
  return {};
}

Result<void> SafetensorsSource::float_parts(const std::string& module,
                                            const MlxModuleParams& params, const TensorInfo& scales,
                                            quant::WeightView* view) const {
  const std::string what = "module " + shown(module);
  constexpr std::pair<std::string_view, quant::Format> kModes[] = {
      {"mxfp4", quant::Format::kMlxMXFP4},
      {"mxfp8", quant::Format::kMlxMXFP8},
      {"nvfp4", quant::Format::kMlxNVFP4}};
  const auto mode = std::find_if(std::begin(kModes), std::end(kModes),
                                 [&](const auto& row) { return row.first == params.mode; });
  if (mode == std::end(kModes)) {
    return broken(config_path_, what,
                  "quantization mode \"affine\", \"mxfp4\", \"mxfp8\" or \"nvfp4\"",
                  fmt::format("mode {}, which is not supported", shown(params.mode)));
  }
  const std::string& path = file_of(scales);
  if (scales.dtype != DType::kU8) {
    return broken(path, what, fmt::format("scales of U8 in mode {}", params.mode),
                  scales.type_name);
  }
  if (find(module + ".biases") != nullptr) {
    return broken(path, what, fmt::format("no biases in mode {}", params.mode), "biases");
  }
  view->format = mode->second;
  view->scale_dtype = DType::kU8;
  return {};
}

}  // namespace markbase::formats
