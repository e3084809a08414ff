// The "quantization" block that MLX writes into config.json: bits and group size of each module.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::formats {

struct MlxModuleParams {
  std::string mode = "affine";
  int bits = 4;
  int group_size = 64;
};

class MlxQuantization {
 public:
  // Reads "quantization", or "quantization_config" where that is an MLX block; a config without
  // either gives an empty object. `path` names config.json in errors.
  static Result<MlxQuantization> from_config(const base::Json& config, const std::string& path);

  // False when the config says nothing about quantised modules.
  bool present() const { return present_; }
  // Overrides are looked up by the module's name in the file and by the one that mlx-vlm's loader
  // gives it, each of them then without a leading "language_model."; without a mode they are
  // affine, whatever the block's own. An override `false` is ignored: whether a module is quantised
  // is told by its scales alone. Source: mlx_vlm.utils, _quantization_for_module_path; the sanitize
  // of its gemma4.
  const MlxModuleParams& of(std::string_view module) const;

 private:
  bool present_ = false;
  MlxModuleParams top_;
  std::unordered_map<std::string, MlxModuleParams> overrides_;
};

}  // namespace markbase::formats
