#include "backends/cpu/pack.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cpu/pack_scales.h"
#include "base/check.h"
#include "base/error.h"

namespace markbase::backends::cpu {
namespace {

constexpr int64_t kNoRow = std::numeric_limits<int64_t>::max();
// Source rows of about this many packed bytes are read before the caller may release their pages.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

CodeKind code_kind(const quant::GroupedLayout& layout) {
  if (layout.codebook != quant::Codebook::kNone) return CodeKind::kTable4;
  switch (layout.bits) {
    case 2:
      return CodeKind::k2;
    case 3:
      return CodeKind::k3;
    case 4:
      return CodeKind::k4;
    case 5:
      return CodeKind::k5;
    case 6:
      return CodeKind::k6;
    default:
      return CodeKind::k8;
  }
}

ScaleCode scale_code(const quant::GroupedLayout& layout, quant::Format format) {
  switch (layout.scale_kind) {
    case quant::ScaleKind::kF16:
      return ScaleCode::kF16;
    case quant::ScaleKind::kBF16:
      return ScaleCode::kBF16;
    case quant::ScaleKind::kF32:
      return ScaleCode::kF32;
    case quant::ScaleKind::kE8M0:
      return ScaleCode::kE8M0;
    case quant::ScaleKind::kE4M3:
      return ScaleCode::kE4M3;
    case quant::ScaleKind::kSub:
      break;
  }
  return quant::sub_is_signed(format) ? ScaleCode::kSubSigned : ScaleCode::kSubUnsigned;
}

FloatCode float_code(quant::Format format) {
  switch (format) {
    case quant::Format::kF16:
      return FloatCode::kF16;
    case quant::Format::kBF16:
      return FloatCode::kBF16;
    case quant::Format::kF8E4M3:
      return FloatCode::kE4M3;
    case quant::Format::kMlxMXFP8:
      return FloatCode::kMxfp8;
    default:
      return FloatCode::kF32;
  }
}

// One thread's room for 16 rows of source parts.
struct RowParts {
  explicit RowParts(const quant::WeightView& weight, const PackedFormat& format) {
    if (!format.is_grouped) return;
    const auto cols = static_cast<size_t>(weight.cols);
    const size_t groups = cols / static_cast<size_t>(format.grouped.group_size);
    codes.resize(kBlockRows * cols);
    if (is_sub(format.grouped)) {
      sub.resize(kBlockRows * groups);
      submin.resize(kBlockRows * groups);
      d.resize(kBlockRows * (cols / kSegment));
      dmin.resize(kBlockRows * (cols / kSegment));
    } else {
      scales.resize(kBlockRows * groups);
      offsets.resize(kBlockRows * groups);
    }
  }
  static bool is_sub(const GroupedFormat& f) {
    return f.scales == ScaleCode::kSubSigned || f.scales == ScaleCode::kSubUnsigned;
  }

  std::vector<uint8_t> codes;  // [16][cols]
  std::vector<float> scales;   // [16][groups]
  std::vector<float> offsets;
  std::vector<uint8_t> sub;
  std::vector<uint8_t> submin;
  std::vector<uint16_t> d;  // [16][super-blocks]
  std::vector<uint16_t> dmin;
};

bool finite_half(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

// Part `row` of `count` entries a row.
template <class T>
std::span<T> row_part(std::vector<T>& all, int64_t row) {
  const size_t count = all.size() / kBlockRows;
  return std::span<T>(all).subspan(static_cast<size_t>(row) * count, count);
}

// Reads row `row` of the weight into place r; false where a scale is not finite.
bool load_row(const quant::WeightView& weight, const GroupedFormat& f, int64_t row, int64_t r,
              RowParts* parts) {
  quant::unpack_codes(weight, row, row_part(parts->codes, r));
  if (RowParts::is_sub(f)) {
    const auto d = row_part(parts->d, r);
    const auto dmin = row_part(parts->dmin, r);
    quant::unpack_sub_scales(weight, row,
                             {d, dmin, row_part(parts->sub, r), row_part(parts->submin, r)});
    return std::all_of(d.begin(), d.end(), finite_half) &&
           (!f.has_offset || std::all_of(dmin.begin(), dmin.end(), finite_half));
  }
  const auto scales = row_part(parts->scales, r);
  const auto offsets = row_part(parts->offsets, r);
  quant::unpack_scales(weight, row, scales, offsets);
  const auto finite = [](float v) { return std::isfinite(v); };
  return std::all_of(scales.begin(), scales.end(), finite) &&
         (!f.has_offset || std::all_of(offsets.begin(), offsets.end(), finite));
}

// Zero codes and zero scales for a row that the weight does not have.
void zero_row(int64_t r, RowParts* parts) {
  std::ranges::fill(row_part(parts->codes, r), uint8_t{0});
  std::ranges::fill(row_part(parts->scales, r), 0.0f);
  std::ranges::fill(row_part(parts->offsets, r), 0.0f);
  std::ranges::fill(row_part(parts->sub, r), uint8_t{0});
  std::ranges::fill(row_part(parts->submin, r), uint8_t{0});
  std::ranges::fill(row_part(parts->d, r), uint16_t{0});
  std::ranges::fill(row_part(parts->dmin, r), uint16_t{0});
}

// Bits [shift, shift + bits) of the codes of an 8-bit plane as a plane of `bits` bits.
template <int kBits>
void compress_plane(const uint8_t* plane8, int64_t length, int shift, uint8_t* out) {
  constexpr int64_t kPerByte = 8 / kBits;
  for (int64_t u = 0; u < length / 4 / kPerByte; ++u, out += 64) {
    const uint8_t* from = plane8 + u * kPerByte * 64;
    for (int64_t j = 0; j < 64; ++j) {
      unsigned byte = 0;
      for (int64_t s = 0; s < kPerByte; ++s) {
        byte |= ((static_cast<unsigned>(from[s * 64 + j]) >> shift) & ((1u << kBits) - 1))
                << (s * kBits);
      }
      out[j] = static_cast<uint8_t>(byte);
    }
  }
}

void write_codes(const GroupedFormat& f, const RowParts& parts, int64_t cols, int64_t begin,
                 int64_t length, uint8_t* out) {
  alignas(64) uint8_t plane8[kSegment * kBlockRows];
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const uint8_t* row = parts.codes.data() + r * cols + begin;
    for (int64_t s = 0; s < length / 4; ++s) std::memcpy(plane8 + 64 * s + 4 * r, row + 4 * s, 4);
  }
  uint8_t* high = out + first_plane_bytes(f, length);
  switch (f.bits) {
    case 2:
      return compress_plane<2>(plane8, length, 0, out);
    case 3:
      compress_plane<2>(plane8, length, 0, out);
      return compress_plane<1>(plane8, length, 2, high);
    case 4:
      return compress_plane<4>(plane8, length, 0, out);
    case 5:
      compress_plane<4>(plane8, length, 0, out);
      return compress_plane<1>(plane8, length, 4, high);
    case 6:
      compress_plane<4>(plane8, length, 0, out);
      return compress_plane<2>(plane8, length, 4, high);
    default:
      std::memcpy(out, plane8, static_cast<size_t>(length * kBlockRows));
  }
}

void write_scale(const GroupedFormat& f, float value, int64_t at, uint8_t* out) {
  if (f.scales == ScaleCode::kF32) {
    std::memcpy(out + 4 * at, &value, 4);
  } else if (f.scales == ScaleCode::kE8M0) {
    out[at] = e8m0_code(value);
  } else if (f.scales == ScaleCode::kE4M3) {
    out[at] = doubled_e4m3_code(value);
  } else {
    const uint16_t bits =
        f.scales == ScaleCode::kF16 ? base::float_to_fp16(value) : base::float_to_bf16(value);
    std::memcpy(out + 2 * at, &bits, 2);
  }
}

void write_sub_scales(const GroupedFormat& f, RowParts& parts, int64_t begin, int64_t groups,
                      uint8_t* out) {
  const int64_t entries = groups * kBlockRows;
  const auto super = static_cast<size_t>(begin / kSegment);
  uint8_t* halves = out + entries * (f.has_offset ? 2 : 1);
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const auto first = static_cast<size_t>(begin / f.group_size);
    const auto sub = row_part(parts.sub, r).subspan(first);
    const auto submin = row_part(parts.submin, r).subspan(first);
    for (int64_t g = 0; g < groups; ++g) out[g * kBlockRows + r] = sub[static_cast<size_t>(g)];
    std::memcpy(halves + 2 * r, &row_part(parts.d, r)[super], 2);
    if (!f.has_offset) continue;
    for (int64_t g = 0; g < groups; ++g)
      out[entries + g * kBlockRows + r] = submin[static_cast<size_t>(g)];
    std::memcpy(halves + 2 * kBlockRows + 2 * r, &row_part(parts.dmin, r)[super], 2);
  }
}

void write_scales(const GroupedFormat& f, RowParts& parts, int64_t begin, int64_t groups,
                  uint8_t* out) {
  if (RowParts::is_sub(f)) return write_sub_scales(f, parts, begin, groups, out);
  const auto first = static_cast<size_t>(begin / f.group_size);
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const auto scales = row_part(parts.scales, r).subspan(first);
    const auto offsets = row_part(parts.offsets, r).subspan(first);
    for (int64_t g = 0; g < groups; ++g) {
      write_scale(f, scales[static_cast<size_t>(g)], g * kBlockRows + r, out);
      if (!f.has_offset) continue;
      write_scale(f, offsets[static_cast<size_t>(g)], (groups + g) * kBlockRows + r, out);
    }
  }
}

// Returns the first row whose scale is not finite, or kNoRow.
int64_t pack_grouped_block(const quant::WeightView& weight, const GroupedFormat& f, int64_t block,
                           RowParts& parts, uint8_t* out) {
  int64_t bad_row = kNoRow;
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const int64_t row = block * kBlockRows + r;
    if (row >= weight.rows) {
      zero_row(r, &parts);
    } else if (!load_row(weight, f, row, r, &parts)) {
      bad_row = std::min(bad_row, row);
    }
  }
  for (int64_t begin = 0; begin < weight.cols; begin += kSegment) {
    const int64_t length = std::min<int64_t>(kSegment, weight.cols - begin);
    write_codes(f, parts, weight.cols, begin, length, out);
    write_scales(f, parts, begin, length / f.group_size, out + code_bytes(f, length));
    out += segment_bytes(f, length);
  }
  return bad_row;
}

template <class T>
int64_t pack_float_rows(const quant::WeightView& weight, int64_t block, FloatCode code,
                        uint8_t* out) {
  int64_t bad_row = kNoRow;
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const int64_t row = block * kBlockRows + r;
    if (row >= weight.rows) break;
    const std::byte* from =
        weight.data.data() + row * weight.cols * static_cast<int64_t>(sizeof(T));
    uint8_t* to = out + r * static_cast<int64_t>(sizeof(T));
    for (int64_t k = 0; k < weight.cols; ++k) {
      std::memcpy(to + k * kBlockRows * static_cast<int64_t>(sizeof(T)),
                  from + k * static_cast<int64_t>(sizeof(T)), sizeof(T));
    }
    for (int64_t k = 0; k < weight.cols; ++k) {
      if (!std::isfinite(packed_float(code, out, k * kBlockRows + r)))
        bad_row = std::min(bad_row, row);
    }
  }
  return bad_row;
}

// Codes and scale bytes of a row that is there; false where a value is not finite.
bool pack_mxfp8_row(const quant::WeightView& weight, int64_t row, int64_t r, uint8_t* block) {
  const auto* codes = reinterpret_cast<const uint8_t*>(weight.data.data()) + row * weight.cols;
  const auto* scales =
      reinterpret_cast<const uint8_t*>(weight.scales.data()) + row * (weight.cols / kUnit);
  std::vector<float> values(static_cast<size_t>(weight.cols));
  quant::decode_row(weight, row, values);
  for (int64_t unit = 0; unit < weight.cols / kUnit; ++unit) {
    uint8_t* out = block + float_bytes(FloatCode::kMxfp8, unit * kUnit) + r;
    for (int64_t k = 0; k < kUnit; ++k) out[k * kBlockRows] = codes[unit * kUnit + k];
    out[kUnit * kBlockRows] = scales[unit];
  }
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

int64_t pack_mxfp8_rows(const quant::WeightView& weight, int64_t block, uint8_t* out) {
  int64_t bad_row = kNoRow;
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const int64_t row = block * kBlockRows + r;
    if (row < weight.rows && !pack_mxfp8_row(weight, row, r, out)) bad_row = std::min(bad_row, row);
  }
  return bad_row;
}

int64_t pack_block(const quant::WeightView& weight, const PackedFormat& format, int64_t block,
                   RowParts& parts, uint8_t* out) {
  if (format.is_grouped) return pack_grouped_block(weight, format.grouped, block, parts, out);
  switch (format.floats) {
    case FloatCode::kF32:
      return pack_float_rows<uint32_t>(weight, block, format.floats, out);
    case FloatCode::kF16:
    case FloatCode::kBF16:
      return pack_float_rows<uint16_t>(weight, block, format.floats, out);
    case FloatCode::kE4M3:
      return pack_float_rows<uint8_t>(weight, block, format.floats, out);
    case FloatCode::kMxfp8:
      return pack_mxfp8_rows(weight, block, out);
  }
  return kNoRow;
}

Error not_finite(const quant::WeightView& weight, std::string_view name, int64_t row) {
  return base::bad_input("{}: row {} of {} ({}): expected finite {}, got NaN or infinity", name,
                         row, weight.rows, quant::format_name(weight.format),
                         quant::grouped_layout(weight) ? "scales" : "weights");
}

void decode_grouped(const GroupedFormat& f, const uint8_t* segment, int64_t length, int64_t r,
                    float factor, float* out) {
  const uint8_t* scales = segment + code_bytes(f, length);
  for (int64_t g = 0; g < length / f.group_size; ++g) {
    const float scale = packed_scale(f, scales, length, g, r);
    const float offset = f.has_offset ? packed_offset(f, scales, length, g, r) : 0.0f;
    for (int64_t k = g * f.group_size; k < (g + 1) * f.group_size; ++k) {
      float value = scale * static_cast<float>(segment_code(f, segment, length, k, r));
      if (f.has_offset) value = value + offset;
      out[k] = factor * value;
    }
  }
}

}  // namespace

PackedFormat packed_format(const quant::WeightView& weight) {
  PackedFormat format;
  const auto layout = quant::grouped_layout(weight);
  if (!layout) {
    format.floats = float_code(weight.format);
    return format;
  }
  format.is_grouped = true;
  GroupedFormat& f = format.grouped;
  f.codes = code_kind(*layout);
  f.scales = scale_code(*layout, weight.format);
  f.has_offset = layout->has_offset;
  f.bits = layout->bits;
  f.group_size = layout->group_size;
  f.group_level = std::countr_zero(static_cast<unsigned>(layout->group_size)) - 4;
  f.zero_point = layout->zero_point;
  if (layout->codebook != quant::Codebook::kNone) {
    constexpr int kTableZero = 128;
    f.zero_point = kTableZero;
    const auto values = quant::codebook_values(layout->codebook);
    for (size_t i = 0; i < 16; ++i) f.table[i] = static_cast<uint8_t>(values[i] + kTableZero);
  }
  return format;
}

int64_t packed_block_bytes(const PackedFormat& format, int64_t cols) {
  if (!format.is_grouped) return round_up(float_bytes(format.floats, cols), 64);
  const int64_t rest = cols % kSegment;
  int64_t bytes = cols / kSegment * segment_bytes(format.grouped, kSegment);
  if (rest > 0) bytes += segment_bytes(format.grouped, rest);
  return bytes;
}

size_t packed_weight_bytes(const quant::WeightView& weight) {
  const int64_t blocks = (weight.rows + kBlockRows - 1) / kBlockRows;
  return static_cast<size_t>(blocks * packed_block_bytes(packed_format(weight), weight.cols));
}

Result<WeightArena::Piece> WeightArena::take(size_t size_bytes) {
  constexpr size_t kRegionBytes = size_t{32} << 20;
  if (size_bytes > kRegionBytes / 4) {
    MB_ASSIGN(base::AlignedBuffer own,
              base::AlignedBuffer::allocate(size_bytes, base::AlignedBuffer::Pages::kHuge));
    auto region = std::make_shared<base::AlignedBuffer>(std::move(own));
    std::byte* data = region->data();
    return Piece{std::move(region), data, size_bytes};
  }
  if (region_ == nullptr || used_bytes_ + size_bytes > region_->size_bytes()) {
    MB_ASSIGN(base::AlignedBuffer next,
              base::AlignedBuffer::allocate(kRegionBytes, base::AlignedBuffer::Pages::kHuge));
    region_ = std::make_shared<base::AlignedBuffer>(std::move(next));
    used_bytes_ = 0;
  }
  std::byte* data = region_->data() + used_bytes_;
  used_bytes_ += static_cast<size_t>(round_up(static_cast<int64_t>(size_bytes), 64));
  return Piece{region_, data, size_bytes};
}

Result<std::unique_ptr<CpuPackedWeight>> pack_weight(
    base::ThreadPool& pool, WeightArena& arena, const quant::WeightView& weight,
    std::string_view name, base::FunctionRef<void(int64_t, int64_t)> on_rows_done) {
  const PackedFormat format = packed_format(weight);
  MB_ASSIGN(WeightArena::Piece memory, arena.take(packed_weight_bytes(weight)));
  auto* const out = reinterpret_cast<uint8_t*>(memory.data);
  auto packed = std::make_unique<CpuPackedWeight>(
      weight.rows, weight.cols, format, std::span<const std::byte>(memory.data, memory.size_bytes),
      std::move(memory.region));
  std::vector<RowParts> parts;
  parts.reserve(static_cast<size_t>(pool.num_threads()));
  for (int i = 0; i < pool.num_threads(); ++i) parts.emplace_back(weight, format);
  const int64_t num_blocks = packed->num_blocks();
  const int64_t piece =
      std::max<int64_t>(kPieceBytes / packed->block_bytes(), 4 * pool.num_threads());
  std::atomic<int64_t> bad_row{kNoRow};
  for (int64_t first = 0; first < num_blocks; first += piece) {
    const int64_t count = std::min(piece, num_blocks - first);
    pool.run(count, [&](int64_t chunk, int thread) {
      const int64_t block = first + chunk;
      const int64_t bad = pack_block(weight, format, block, parts[static_cast<size_t>(thread)],
                                     out + block * packed->block_bytes());
      int64_t known = bad_row.load(std::memory_order_relaxed);
      while (bad < known && !bad_row.compare_exchange_weak(known, bad)) {
      }
    });
    if (bad_row.load() != kNoRow) return not_finite(weight, name, bad_row.load());
    on_rows_done(first * kBlockRows, std::min(weight.rows, (first + count) * kBlockRows));
  }
  return packed;
}

std::unique_ptr<CpuPackedWeight> restore_weight(const quant::WeightView& weight,
                                                std::span<const std::byte> content) {
  MB_CHECK(content.size() == packed_weight_bytes(weight));
  MB_CHECK(reinterpret_cast<uintptr_t>(content.data()) % 64 == 0);
  return std::make_unique<CpuPackedWeight>(weight.rows, weight.cols, packed_format(weight), content,
                                           nullptr);
}

void decode_packed_row(const CpuPackedWeight& weight, int64_t row, float factor, float* out) {
  MB_DCHECK(row >= 0 && row < weight.rows());
  const uint8_t* block = weight.block(row / kBlockRows);
  const int64_t r = row % kBlockRows;
  if (!weight.format().is_grouped) {
    for (int64_t k = 0; k < weight.cols(); ++k) {
      out[k] = factor * packed_float(weight.format().floats, block, k * kBlockRows + r);
    }
    return;
  }
  const GroupedFormat& f = weight.format().grouped;
  for (int64_t begin = 0; begin < weight.cols(); begin += kSegment) {
    const int64_t length = std::min<int64_t>(kSegment, weight.cols() - begin);
    decode_grouped(f, block, length, r, factor, out + begin);
    block += segment_bytes(f, length);
  }
}

}  // namespace markbase::backends::cpu
