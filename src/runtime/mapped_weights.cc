#include "runtime/mapped_weights.h"

namespace markbase::runtime {

void MappedWeights::prefetch(std::span<const int32_t> rows) const {
  if (source_ == nullptr || table_.rows == 0) return;
  for (const std::span<const std::byte> part : {table_.data, table_.scales, table_.biases}) {
    const size_t row_bytes = part.size() / static_cast<size_t>(table_.rows);
    for (const int32_t row : rows) {
      source_->prefetch(part.subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
    }
  }
}

Result<void> MappedWeights::check_intact() const {
  if (source_ != nullptr) MB_TRY(source_->check_intact());
  return packed_ == nullptr ? Result<void>() : packed_->check_intact();
}

}  // namespace markbase::runtime
