// MLX affine rows: codes as a stream of bits in words of 32, scales and biases apart. Private to
// this room; the checks are validate()'s.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace markbase::quant {

// Element i of a row occupies bits [i * bits, (i + 1) * bits) of its bytes, least significant
// first. codes.size() is a multiple of 8; bits is 2, 3, 4, 5, 6 or 8; packed has codes.size() *
// bits / 8 bytes.
void unpack_bit_stream(int bits, const uint8_t* packed, std::span<uint8_t> codes);
// The inverse.
void pack_bit_stream(int bits, std::span<const uint8_t> codes, uint8_t* packed);

// out[i] = element i of the values at bytes, of type F32, F16, BF16 or F8_E4M3. The file is
// little-endian, and so are the machines we run on.
void load_floats(tensor::DType dtype, const uint8_t* bytes, std::span<float> out);

}  // namespace markbase::quant
