#include "formats/mlx/mlx_quantization.h"

#include "formats/broken.h"

namespace markbase::formats {
namespace {

using base::Json;

Result<void> read_integer(const Json& block, const char* key, const std::string& path,
                          const std::string& what, int* out) {
  const auto found = block.find(key);
  if (found == block.end()) return {};
  if (!found->is_number_unsigned() || found->get<uint64_t>() > 1024) {
    return broken(path, fmt::format("{}.{}", what, key), "an integer of 0 to 1024",
                  shown(base::dump_json(*found)));
  }
  *out = static_cast<int>(found->get<uint64_t>());
  return {};
}

// What MLX takes where the block is silent.
MlxModuleParams defaults_of(std::string mode) {
  if (mode == "mxfp4") return {std::move(mode), 4, 32};
  if (mode == "mxfp8") return {std::move(mode), 8, 32};
  if (mode == "nvfp4") return {std::move(mode), 4, 16};
  return {std::move(mode), 4, 64};
}

Result<MlxModuleParams> read_params(const Json& block, const std::string& path,
                                    const std::string& what) {
  std::string name = "affine";
  const auto mode = block.find("mode");
  if (mode != block.end()) {
    if (!mode->is_string()) {
      return broken(path, what + ".mode", "a string", shown(base::dump_json(*mode)));
    }
    name = mode->get<std::string>();
  }
  MlxModuleParams params = defaults_of(std::move(name));
  MB_TRY(read_integer(block, "bits", path, what, &params.bits));
  MB_TRY(read_integer(block, "group_size", path, what, &params.group_size));
  return params;
}

constexpr std::string_view kText = "language_model.";

bool take(std::string_view* text, std::string_view start) {
  if (!text->starts_with(start)) return false;
  text->remove_prefix(start.size());
  return true;
}

// What mlx-vlm calls a module that a file names in another way: its entry stands under that name.
// Hugging Face's "model." goes, "language_model." is followed by "model."; experts that are fused,
// or apart, are those of switch_glu.
std::string loaded_as(std::string_view module) {
  take(&module, "model.");
  std::string out;
  if (take(&module, kText)) {
    take(&module, "model.");
    out = std::string(kText) + "model.";
  }
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = module.find(kExperts);
  if (at == std::string_view::npos) return out + std::string(module);
  std::string_view expert = module.substr(at + kExperts.size());
  out += module.substr(0, at + kExperts.size());
  if (expert.starts_with("switch_glu.")) return out + std::string(expert);
  const size_t number = expert.find_first_not_of("0123456789");
  if (number != 0 && number != std::string_view::npos && expert[number] == '.')
    expert.remove_prefix(number + 1);
  // Gate and up lie in one tensor: what holds for one holds for the other.
  return out + "switch_glu." + (expert == "gate_up_proj" ? "gate_proj" : std::string(expert));
}

}  // namespace

Result<MlxQuantization> MlxQuantization::from_config(const Json& config, const std::string& path) {
  MlxQuantization out;
  const char* key = "quantization";
  auto block = config.find(key);
  if (block == config.end()) {
    key = "quantization_config";
    block = config.find(key);
    // Other exporters use the second name for blocks of their own, without these two fields.
    if (block == config.end() || !block->is_object() || !block->contains("group_size") ||
        !block->contains("bits")) {
      return out;
    }
  }
  if (!block->is_object()) {
    return broken(path, fmt::format("\"{}\"", key), "an object", block->type_name());
  }
  out.present_ = true;
  MB_ASSIGN(out.top_, read_params(*block, path, key));
  for (const auto& [name, value] : block->items()) {
    if (!value.is_object()) continue;
    MB_ASSIGN(MlxModuleParams params,
              read_params(value, path, fmt::format("{}.{}", key, shown(name))));
    out.overrides_[name] = std::move(params);
  }
  return out;
}

const MlxModuleParams& MlxQuantization::of(std::string_view module) const {
  for (const std::string& path : {std::string(module), loaded_as(module)}) {
    auto found = overrides_.find(path);
    if (found == overrides_.end() && path.starts_with(kText)) {
      found = overrides_.find(path.substr(kText.size()));
    }
    if (found != overrides_.end()) return found->second;
  }
  return top_;
}

}  // namespace markbase::formats
