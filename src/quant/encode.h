// Plain encoders: floats to the bytes of a format, for writers, synthetic models and tests. They
// aim at valid files and known bounds, not at the best quality a format can give.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/weight_view.h"

namespace markbase::quant {

// Encodes one row into out, row.size() / block elements * block bytes. Formats: F32, F16, BF16,
// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K; any other is an MB_CHECK, as is a wrong out.size() or a
// row that is not whole blocks.
//   Q4_0, Q5_0  d = (value of largest magnitude) / -8 or -16, q = trunc(w / d + 8.5 or 16.5), at
//   most n Q4_1, Q5_1  d = (max - min) / 15 or 31, m = min, q = trunc((w - m) / d + 0.5) Q8_0 d =
//   max|w| / 127, q = round(w / d), halves away from zero Q4_K        per 32: m = max(0, -min), s =
//   (max + m) / 15, both rounded to 63rds of their largest Q6_K        per 16: s = (value of
//   largest magnitude) / -32, rounded to 128ths of the largest s
// Codes of the simple types are computed with the unrounded float32 d, as the field's tools do;
// those of the K types with the rounded one. A decoded value of a simple type differs by at most
//   Q4_0, Q5_0 |d|, Q4_1, Q5_1 and Q8_0 |d| / 2, plus what rounding d (and m) to half moves.
// Error (kBadInput): a value that is not finite, or a scale beyond half precision.
Result<void> encode_row(Format format, std::span<const float> row, std::span<std::byte> out);

// MLX's affine quantiser for one row. words: row.size() * bits / 8 bytes; scales and biases: one
// value of scale_dtype (F32, F16, BF16) a group. With n = 2^bits - 1 and lo, hi the group's
// extremes: s = max((hi - lo) / n, 1e-7), negated unless |lo| > |hi|; edge = the extreme of larger
// magnitude; q0 = rint(edge / s); where q0 is not 0, s = edge / q0 and bias = edge, else bias = 0;
// q = clamp(rint((w - bias) / s), 0, n) with s and bias before they are rounded to scale_dtype.
// MB_CHECKs as encode_row; the same errors.
Result<void> encode_affine_row(int bits, int group_size, tensor::DType scale_dtype,
                               std::span<const float> row, std::span<std::byte> words,
                               std::span<std::byte> scales, std::span<std::byte> biases);

// count blocks of a format (not of MLX) with random codes and scales that are finite and of the
// size weights have, both signs; the same bytes for the same seed on every machine.
std::vector<std::byte> random_blocks(Format format, uint64_t seed, int64_t count);

}  // namespace markbase::quant
