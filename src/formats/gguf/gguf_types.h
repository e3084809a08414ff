// The numbers a GGUF file uses for tensor types and metadata types, and what they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/weight_view.h"
#include "tensor/dtype.h"

namespace markbase::formats {

struct GgmlType {
  std::string_view name;
  // Of one block; 0 for a type that is only known by name.
  int64_t block_elements = 0;
  int64_t block_bytes = 0;
  // What the reader makes of it; neither for a type that is refused.
  std::optional<quant::Format> format;
  std::optional<tensor::DType> dtype;

  bool supported() const { return format.has_value() || dtype.has_value(); }
};

// nullptr for a number that stands for no type.
const GgmlType* find_ggml_type(uint32_t id);
// nullopt for a name that stands for no type.
std::optional<uint32_t> ggml_type_id(std::string_view name);

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kNumGgufValueTypes = 13;

// "u8", "f32", "string", ...; "unknown type" beyond the table.
std::string_view gguf_value_type_name(uint32_t type);
// Bytes of one value; 0 for strings, arrays and unknown types.
uint64_t gguf_value_bytes(uint32_t type);

}  // namespace markbase::formats
