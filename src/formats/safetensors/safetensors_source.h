// A directory of safetensors files with its config.json as a WeightSource, MLX quantised modules
// joined.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/mlx/mlx_quantization.h"
#include "formats/safetensors/safetensors_file.h"
#include "formats/source_base.h"

namespace markbase::formats {

class SafetensorsSource final : public SourceBase {
 public:
  // The files are those that model.safetensors.index.json names; without an index model.safetensors
  // alone; without that, every *.safetensors of the directory.
  // Errors: no config.json, no weights, an index that names a missing file or tensor, a shard of a
  // numbered set that is absent, those of SafetensorsFile.
  static Result<std::unique_ptr<SafetensorsSource>> open(const std::string& directory);
  // Files already opened; `config_path` stands in messages.
  static Result<std::unique_ptr<SafetensorsSource>> make(std::vector<SafetensorsFile> files,
                                                         base::Json config,
                                                         const std::string& config_path);

  FileKind kind() const override { return FileKind::kSafetensors; }
  // A module is quantised if and only if NAME.scales exists. NAME.weight may also be asked for by
  // its whole name, and so may tensors that have no suffix ("layer_scalar").
  Result<quant::WeightView> weight(std::string_view name) const override;
  std::span<const SafetensorsFile> parts() const { return parts_; }
  // Tensors of the shards that the index does not name: they are found all the same.
  std::span<const std::string> remarks() const override { return remarks_; }

 private:
  Result<quant::WeightView> mlx_weight(const std::string& module, const TensorInfo& weight,
                                       const TensorInfo& scales) const;
  // The format, and the parts that it has beside the words, into the view.
  Result<void> affine_parts(const std::string& module, const TensorInfo& scales,
                            quant::WeightView* view) const;
  Result<void> float_parts(const std::string& module, const MlxModuleParams& params,
                           const TensorInfo& scales, quant::WeightView* view) const;
  Error no_such_weight(const std::string& module) const;

  std::vector<SafetensorsFile> parts_;
  std::vector<std::string> remarks_;
  MlxQuantization quantization_;
  std::string config_path_;
};

}  // namespace markbase::formats
