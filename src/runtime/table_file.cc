#include "runtime/table_file.h"

namespace markbase::runtime {

void TableFile::prefetch(std::span<const int32_t> rows) const {
  if (source_ == nullptr || table_.rows == 0) return;
  for (const std::span<const std::byte> part : {table_.data, table_.scales, table_.biases}) {
    const size_t row_bytes = part.size() / static_cast<size_t>(table_.rows);
    for (const int32_t row : rows) {
      source_->prefetch(part.subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
    }
  }
}

Result<void> TableFile::check_intact() const {
  return source_ == nullptr ? Result<void>() : source_->check_intact();
}

}  // namespace markbase::runtime
