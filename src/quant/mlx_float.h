// MLX's float modes: short floats in words of 32, sequential, with one scale byte a group apart
// from them. Private to this room; the checks are validate()'s.
//   mxfp4  E2M1 codes, groups of 32, scale 2^(e - 127)
//   nvfp4  E2M1 codes, groups of 16, scale an E4M3 value
//   mxfp8  E4M3 codes, groups of 32, scale 2^(e - 127)
// The scale byte 255 of the mx modes is no number (OCP Microscaling Formats 1.0), nor are the E4M3
// codes 0x7f and 0xff.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quant/weight_view.h"

namespace markbase::quant {

struct MlxFloatMode {
  int bits;
  int group_size;
};
// nullopt for any other format.
std::optional<MlxFloatMode> mlx_float_mode(Format format);

// mxfp4 and nvfp4, whose table holds doubled values: half of the scale of each byte, exact.
void load_half_scales(Format format, const uint8_t* bytes, std::span<float> out);
// mxfp8: out[i] = E4M3(codes[i]) * 2^(scales[i / 32] - 127), rounded once.
void decode_mxfp8(const uint8_t* codes, const uint8_t* scales, std::span<float> out);

}  // namespace markbase::quant
