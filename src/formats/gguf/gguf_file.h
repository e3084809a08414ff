// A GGUF file (version 2 or 3) mapped and checked: metadata, tensor table, data.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "formats/weight_source.h"
#include "markbase/result.h"

namespace markbase::formats {

// One file of a set. Everything was checked against the bytes that are there; views look into the
// mapping.
class GgufFile {
 public:
  // Errors (kBadInput): file, key or tensor, offset, expected and got.
  static Result<GgufFile> open(const std::string& path);
  // The same rules on bytes in memory (tests, fuzzing); the bytes must outlive the object.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  int version() const { return version_; }
  // All keys; arrays of more than 4096 elements as {"array": element type, "count": n}.
  const base::Json& metadata() const { return metadata_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const base::MappedFile* mapping() const { return mapping_ ? &*mapping_ : nullptr; }

  // Long arrays without copying; kBadInput when the key is missing or of another kind.
  Result<std::vector<std::string_view>> string_array(std::string_view key) const;
  Result<std::vector<float>> float_array(std::string_view key) const;  // f32 or f64
  Result<std::vector<int64_t>> integer_array(
      std::string_view key) const;  // any integer or bool width

 private:
  friend class GgufParser;
  struct ArrayRef {
    std::string key;
    uint32_t element_type = 0;
    uint64_t count = 0;
    std::span<const std::byte> bytes;  // the elements
  };
  const ArrayRef* find_array(std::string_view key) const;

  std::string path_;
  int version_ = 0;
  base::KeptJson metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<ArrayRef> arrays_;
  std::optional<base::MappedFile> mapping_;
};

}  // namespace markbase::formats
