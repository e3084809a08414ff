// Weights in the packed layout of kernels/linear_kernels.h: made once at load, read by every level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "backends/cpu/kernels/linear_kernels.h"
#include "base/buffer.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "markbase/result.h"
#include "ops/packed_weight.h"
#include "quant/weight_view.h"

namespace markbase::backends::cpu {

// How a weight is packed.
struct PackedFormat {
  bool is_grouped = false;
  GroupedFormat grouped{};             // is_grouped
  FloatCode floats = FloatCode::kF32;  // otherwise
};
PackedFormat packed_format(const quant::WeightView& weight);

// Bytes of 16 rows of `cols` columns, a multiple of 64.
int64_t packed_block_bytes(const PackedFormat& format, int64_t cols);
// Bytes of the whole weight: what pack_weight() allocates.
size_t packed_weight_bytes(const quant::WeightView& weight);

// Memory for weights, carved from large regions: a small weight of its own mapping would stand on 4
// KB pages, whose translations cost more than its arithmetic. A region lives as long as any weight
// in it.
class WeightArena {
 public:
  struct Piece {
    std::shared_ptr<base::AlignedBuffer> region;
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };
  // 64-byte aligned and zero. Errors: kOutOfMemory. Not thread safe.
  Result<Piece> take(size_t size_bytes);

 private:
  std::shared_ptr<base::AlignedBuffer> region_;
  size_t used_bytes_ = 0;
};

class CpuPackedWeight : public ops::PackedWeight {
 public:
  // `region`: what holds the content; none where it lies in memory of someone else.
  CpuPackedWeight(int64_t rows, int64_t cols, const PackedFormat& format,
                  std::span<const std::byte> content,
                  std::shared_ptr<const base::AlignedBuffer> region)
      : PackedWeight(rows, cols, content.size()),
        format_(format),
        block_bytes_(packed_block_bytes(format, cols)),
        content_(content),
        region_(std::move(region)) {}

  const PackedFormat& format() const { return format_; }
  int64_t block_bytes() const { return block_bytes_; }
  int64_t num_blocks() const { return (rows() + kBlockRows - 1) / kBlockRows; }
  std::span<const std::byte> content() const { return content_; }
  const uint8_t* block(int64_t idx) const {
    return reinterpret_cast<const uint8_t*>(content_.data()) + idx * block_bytes_;
  }

 private:
  PackedFormat format_;
  int64_t block_bytes_;
  std::span<const std::byte> content_;
  std::shared_ptr<const base::AlignedBuffer> region_;
};

// Packs with all threads, in pieces; on_rows_done(begin, end) is called on this thread after each.
// Errors: kOutOfMemory; kBadInput naming weight and row for a scale, an offset or a plain float
// that is NaN or infinite.
Result<std::unique_ptr<CpuPackedWeight>> pack_weight(
    base::ThreadPool& pool, WeightArena& arena, const quant::WeightView& weight,
    std::string_view name, base::FunctionRef<void(int64_t, int64_t)> on_rows_done);

// The same weight from content() of an earlier one, which outlives it: packed_weight_bytes() at a
// multiple of 64.
std::unique_ptr<CpuPackedWeight> restore_weight(const quant::WeightView& weight,
                                                std::span<const std::byte> content);

// Changes whenever pack_weight() gives other bytes for the same weight. Every instruction set reads
// the same layout.
inline constexpr std::string_view kPackedLayout = "cpu1";

// out[k] = factor * w[row, k], w exactly as quant::decode_row gives it.
void decode_packed_row(const CpuPackedWeight& weight, int64_t row, float factor, float* out);

}  // namespace markbase::backends::cpu
