#include "formats/gguf/gguf_types.h"

#include <array>

namespace markbase::formats {
namespace {

using quant::Format;
using tensor::DType;

constexpr auto kNoFormat = std::nullopt;

// Indexed by the number in the file. Numbers 4, 5, 31-33 and 36-38 were once in use and taken back;
// old files still carry them, so the message can name them.
constexpr std::array<GgmlType, 43> kTypes = {{
    {"F32", 1, 4, Format::kF32, {}},
    {"F16", 1, 2, Format::kF16, {}},
    {"Q4_0", 32, 18, Format::kQ4_0, {}},
    {"Q4_1", 32, 20, Format::kQ4_1, {}},
    {"Q4_2 (removed)", 0, 0, kNoFormat, {}},
    {"Q4_3 (removed)", 0, 0, kNoFormat, {}},
    {"Q5_0", 32, 22, Format::kQ5_0, {}},
    {"Q5_1", 32, 24, Format::kQ5_1, {}},
    {"Q8_0", 32, 34, Format::kQ8_0, {}},
    {"Q8_1", 0, 0, kNoFormat, {}},
    {"Q2_K", 256, 84, Format::kQ2_K, {}},
    {"Q3_K", 256, 110, Format::kQ3_K, {}},
    {"Q4_K", 256, 144, Format::kQ4_K, {}},
    {"Q5_K", 256, 176, Format::kQ5_K, {}},
    {"Q6_K", 256, 210, Format::kQ6_K, {}},
    {"Q8_K", 0, 0, kNoFormat, {}},
    {"IQ2_XXS", 0, 0, kNoFormat, {}},
    {"IQ2_XS", 0, 0, kNoFormat, {}},
    {"IQ3_XXS", 0, 0, kNoFormat, {}},
    {"IQ1_S", 0, 0, kNoFormat, {}},
    {"IQ4_NL", 32, 18, Format::kIQ4_NL, {}},
    {"IQ3_S", 0, 0, kNoFormat, {}},
    {"IQ2_S", 0, 0, kNoFormat, {}},
    {"IQ4_XS", 256, 136, Format::kIQ4_XS, {}},
    {"I8", 1, 1, kNoFormat, DType::kI8},
    {"I16", 1, 2, kNoFormat, DType::kI16},
    {"I32", 1, 4, kNoFormat, DType::kI32},
    {"I64", 1, 8, kNoFormat, DType::kI64},
    {"F64", 1, 8, kNoFormat, DType::kF64},
    {"IQ1_M", 0, 0, kNoFormat, {}},
    {"BF16", 1, 2, Format::kBF16, {}},
    {"Q4_0_4_4 (removed)", 0, 0, kNoFormat, {}},
    {"Q4_0_4_8 (removed)", 0, 0, kNoFormat, {}},
    {"Q4_0_8_8 (removed)", 0, 0, kNoFormat, {}},
    {"TQ1_0", 0, 0, kNoFormat, {}},
    {"TQ2_0", 0, 0, kNoFormat, {}},
    {"IQ4_NL_4_4 (removed)", 0, 0, kNoFormat, {}},
    {"IQ4_NL_4_8 (removed)", 0, 0, kNoFormat, {}},
    {"IQ4_NL_8_8 (removed)", 0, 0, kNoFormat, {}},
    {"MXFP4", 32, 17, Format::kMXFP4, {}},
    {"NVFP4", 0, 0, kNoFormat, {}},
    {"Q1_0", 0, 0, kNoFormat, {}},
    {"Q2_0", 0, 0, kNoFormat, {}},
}};

struct ValueType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<ValueType, kNumGgufValueTypes> kValueTypes = {{{"u8", 1},
                                                                    {"i8", 1},
                                                                    {"u16", 2},
                                                                    {"i16", 2},
                                                                    {"u32", 4},
                                                                    {"i32", 4},
                                                                    {"f32", 4},
                                                                    {"bool", 1},
                                                                    {"string", 0},
                                                                    {"array", 0},
                                                                    {"u64", 8},
                                                                    {"i64", 8},
                                                                    {"f64", 8}}};

}  // namespace

const GgmlType* find_ggml_type(uint32_t id) { return id < kTypes.size() ? &kTypes[id] : nullptr; }

std::optional<uint32_t> ggml_type_id(std::string_view name) {
  for (uint32_t id = 0; id < kTypes.size(); ++id) {
    if (kTypes[id].name == name) return id;
  }
  return std::nullopt;
}

std::string_view gguf_value_type_name(uint32_t type) {
  return type < kNumGgufValueTypes ? kValueTypes[type].name : "unknown type";
}

uint64_t gguf_value_bytes(uint32_t type) {
  return type < kNumGgufValueTypes ? kValueTypes[type].bytes : 0;
}

}  // namespace markbase::formats
