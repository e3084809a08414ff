// The file behind a table that stays mapped while the model runs.
#pragma once

#include <cstdint>
#include <span>

#include "formats/weight_source.h"
#include "markbase/result.h"
#include "quant/weight_view.h"

namespace markbase::runtime {

// Nothing happens without a source. The source outlives it.
class TableFile {
 public:
  TableFile() = default;
  TableFile(const formats::WeightSource& source, const quant::WeightView& table)
      : source_(&source), table_(table) {}

  // These rows will be looked up soon: the system may read them while other work goes on.
  void prefetch(std::span<const int32_t> rows) const;
  // kBadInput when the file was truncated under us: rows looked up since may be zeros.
  Result<void> check_intact() const;

 private:
  const formats::WeightSource* source_ = nullptr;
  quant::WeightView table_;
};

}  // namespace markbase::runtime
