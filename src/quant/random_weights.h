// Random weights of a chosen size, written as the codes and scales of a format, without floats in
// between: for synthetic models, where a weight's spread has to fit its width and speed matters.
// The same arguments give the same bytes on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quant/weight_view.h"

namespace markbase::quant {

// A seed for part `idx` of what `name` says, far from those of other parts and names.
uint64_t part_seed(uint64_t seed, std::string_view name, uint64_t idx);

// Plain floats (F32, F16, BF16), uniform in center +- half_width; out: whole values.
void fill_random_floats(Format format, uint64_t seed, float center, float half_width,
                        std::span<std::byte> out);

// Blocks of Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K (MB_CHECKs any other): values around zero with
// standard deviation near `spread`. Codes are uniform; a block's scale lies within a quarter of
// what gives the spread, of either sign where the codes are not centred, and offsets centre the
// rest. out: whole blocks.
void fill_random_blocks(Format format, uint64_t seed, float spread, std::span<std::byte> out);
bool has_random_blocks(Format format);

// Bytes of MLX's packed words, whatever the bits: every code is valid.
void fill_random_codes(uint64_t seed, std::span<std::byte> out);
// BF16 scales and biases of as many groups, so that uniform codes of these bits give values around
// zero with standard deviation near `spread`.
void fill_random_affine_scales(int bits, uint64_t seed, float spread, std::span<std::byte> scales,
                               std::span<std::byte> biases);

}  // namespace markbase::quant
