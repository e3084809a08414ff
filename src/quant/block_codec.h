// How one GGUF block type is taken apart: a row of function pointers that work on a run of blocks,
// so that the choice of the type costs one jump a run and the loops inside see only constants.
// Private to this room.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "quant/weight_view.h"

namespace markbase::quant {

// Parts of the scales of a run of super-blocks, as unpack_sub_scales gives them. Null where the
// type has no such part.
struct SubScalePointers {
  uint16_t* d;
  uint16_t* dmin;
  uint8_t* sub;
  uint8_t* submin;
};

struct BlockCodec {
  BlockShape shape;
  GroupedLayout layout;
  // codes[count * shape.elements]
  void (*codes)(const uint8_t* blocks, int64_t count, uint8_t* codes);
  // scales and offsets [count * shape.elements / group_size]; offsets untouched without has_offset
  void (*scales)(const uint8_t* blocks, int64_t count, float* scales, float* offsets);
  // Only where scale_kind is kSub, else null.
  void (*sub_scales)(const uint8_t* blocks, int64_t count, const SubScalePointers& out);
};

// The codec of a type that the file holds, null for any other format.
const BlockCodec* simple_block_codec(Format format);  // gguf_blocks.cc: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0
const BlockCodec* k_block_codec(Format format);       // gguf_k_blocks.cc: Q2_K to Q6_K
const BlockCodec* table_block_codec(Format format);   // table_blocks.cc: IQ4_NL IQ4_XS MXFP4

// Files are little-endian; nothing in them is aligned.
inline uint16_t load_u16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | (bytes[1] << 8));
}
inline float load_half(const uint8_t* bytes) { return base::fp16_to_float(load_u16(bytes)); }

// low[i], high[i] = the two nibbles of packed[i].
template <int kCount>
inline void split_nibbles(const uint8_t* __restrict packed, uint8_t* __restrict low,
                          uint8_t* __restrict high) {
  for (int i = 0; i < kCount; ++i) low[i] = packed[i] & 15;
  for (int i = 0; i < kCount; ++i) high[i] = packed[i] >> 4;
}

// Runs over blocks of a type T with kElements, kBytes and codes(block, codes).
template <class T>
void codes_of_run(const uint8_t* blocks, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) T::codes(blocks + i * T::kBytes, codes + i * T::kElements);
}

// The same for T::scales(block, scales, offsets), kElements / kGroup of each.
template <class T>
void scales_of_run(const uint8_t* blocks, int64_t count, float* scales, float* offsets) {
  constexpr int64_t kGroups = T::kElements / T::kGroup;
  for (int64_t i = 0; i < count; ++i) {
    float* block_offsets = offsets == nullptr ? nullptr : offsets + i * kGroups;
    T::scales(blocks + i * T::kBytes, scales + i * kGroups, block_offsets);
  }
}

}  // namespace markbase::quant
