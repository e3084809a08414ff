// The rules of one GGUF file, in the order in which its bytes come.
#pragma once

#include <string>
#include <unordered_set>

#include "formats/byte_reader.h"
#include "formats/gguf/gguf_file.h"

namespace markbase::formats {

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& path);
  Result<GgufFile> run();

 private:
  struct Region {
    uint64_t offset;  // from the start of the data
    uint64_t num_bytes;
  };

  Error ended(std::string_view what, std::string_view expected) const;
  Result<void> read_header();
  Result<void> read_metadata();
  Result<std::string_view> read_string(const std::string& what, uint64_t max_bytes);
  Result<base::Json> read_value(const std::string& what, std::string_view key);
  Result<base::Json> read_scalar(const std::string& what, uint32_t type);
  template <class T>
  Result<base::Json> read_number(const std::string& what);
  Result<base::Json> read_array(const std::string& what, std::string_view key);
  Result<void> skip_strings(const std::string& what, uint64_t count);
  Result<void> read_alignment();
  Result<void> read_tensors();
  Result<void> read_tensor();
  Result<void> read_shape(const std::string& what, TensorInfo* tensor);
  Result<void> read_type(const std::string& what, TensorInfo* tensor);
  Result<void> place_tensors();
  Result<void> check_overlap() const;

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile file_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t alignment_ = 32;
  std::unordered_set<std::string_view> names_;
  std::vector<Region> regions_;  // beside file_.tensors_
};

}  // namespace markbase::formats
