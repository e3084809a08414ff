// One safetensors file mapped and checked: header, tensor table, data.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/weight_source.h"
#include "markbase/result.h"

namespace markbase::formats {

class SafetensorsFile {
 public:
  // Errors (kBadInput): file, tensor or header byte, expected and got. Rules: the header fits the
  // file and 100 MB, is a JSON object with each name once; shape times dtype equals the bytes; the
  // tensors fill the data without holes, overlaps or a rest.
  static Result<SafetensorsFile> open(const std::string& path);
  // The same rules on bytes in memory (tests, fuzzing); the bytes must outlive the object.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  // The "__metadata__" entry: {"format": "mlx"}.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In the order of their data.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const base::MappedFile* mapping() const { return mapping_ ? &*mapping_ : nullptr; }

 private:
  std::string path_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorInfo> tensors_;
  std::optional<base::MappedFile> mapping_;
};

}  // namespace markbase::formats
