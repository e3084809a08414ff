// Writes a safetensors file: tensors are declared first, then their bytes stream in order.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/file_writer.h"
#include "markbase/result.h"
#include "tensor/dtype.h"

namespace markbase::formats {

class SafetensorsWriter {
 public:
  // Becomes the "__metadata__" entry unless empty, e.g. {{"format", "pt"}}.
  explicit SafetensorsWriter(std::map<std::string, std::string> metadata = {});

  // `shape` outermost first; {} is a scalar.
  void add_tensor(std::string_view name, const std::vector<int64_t>& shape, tensor::DType dtype);
  // Length, JSON and spaces up to a multiple of 8 bytes: for files built in memory.
  std::string header() const;

  // Creates the file and writes the header; nothing may be declared afterwards.
  Result<void> open(const std::string& path);
  // The next bytes of the data, all tensors one after another.
  Result<void> write(std::span<const std::byte> bytes);
  // MB_CHECKs that exactly the declared bytes were written.
  Result<void> finish();

 private:
  base::Json json_;
  uint64_t data_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  std::optional<FileWriter> file_;
};

}  // namespace markbase::formats
