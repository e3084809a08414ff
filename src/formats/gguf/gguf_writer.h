// Writes a GGUF file: keys and tensors are declared first, then the tensors' bytes stream in order.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "formats/file_writer.h"
#include "markbase/result.h"

namespace markbase::formats {

class GgufWriter {
 public:
  // `version` 2 or 3 (the layout is the same), `alignment` a power of two. An alignment other than
  // 32 is also written as general.alignment.
  explicit GgufWriter(uint32_t version = 3, uint64_t alignment = 32);

  // A number, a bool or a string; the type of the argument is the type in the file.
  template <class T>
  void add(std::string_view key, const T& value) {
    begin_key(key, type_of<T>());
    put(value);
  }
  // An array of them.
  template <class T>
  void add_array(std::string_view key, const std::vector<T>& values) {
    begin_array(key, type_of<T>(), values.size());
    for (const auto& value : values) put(static_cast<const T&>(value));
  }

  // `shape` outermost first, `ggml_type` a supported type whose block divides the last axis
  // (MB_CHECKed).
  void add_tensor(std::string_view name, const std::vector<int64_t>& shape, uint32_t ggml_type);

  // Everything before the data, padding included: for files built in memory.
  std::string header() const;
  // The bytes that a tensor of these bytes takes in the data.
  uint64_t padded(uint64_t num_bytes) const;

  // Creates the file and writes the header; nothing may be declared afterwards.
  Result<void> open(const std::string& path);
  // The next piece of the data of the tensors, which come in the order of their declaration; a
  // piece may not reach into the next tensor (MB_CHECKed).
  Result<void> write(std::span<const std::byte> bytes);
  // After the last byte of the last tensor.
  Result<void> finish();

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t type;
    uint64_t num_bytes;
    uint64_t offset;
  };

  template <class T>
  static constexpr uint32_t type_of() {
    if constexpr (std::same_as<T, uint8_t>) return 0;
    if constexpr (std::same_as<T, int8_t>) return 1;
    if constexpr (std::same_as<T, uint16_t>) return 2;
    if constexpr (std::same_as<T, int16_t>) return 3;
    if constexpr (std::same_as<T, uint32_t>) return 4;
    if constexpr (std::same_as<T, int32_t>) return 5;
    if constexpr (std::same_as<T, float>) return 6;
    if constexpr (std::same_as<T, bool>) return 7;
    if constexpr (std::same_as<T, uint64_t>) return 10;
    if constexpr (std::same_as<T, int64_t>) return 11;
    if constexpr (std::same_as<T, double>) return 12;
    return 8;
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T>) {
      put_bytes(&value, sizeof(value));
    } else {
      put_string(value);
    }
  }
  void begin_key(std::string_view key, uint32_t type);
  void begin_array(std::string_view key, uint32_t element_type, uint64_t count);
  void put_bytes(const void* bytes, size_t num_bytes);
  void put_string(std::string_view text);

  uint32_t version_;
  uint64_t alignment_;
  std::string keys_;
  uint64_t num_keys_ = 0;
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;
  std::optional<FileWriter> file_;
  size_t tensor_idx_ = 0;       // the tensor being written
  uint64_t written_bytes_ = 0;  // of it
};

}  // namespace markbase::formats
