// The files behind weights that stay mapped while the model runs.
#pragma once

#include <cstdint>
#include <span>

#include "base/mapped_file.h"
#include "formats/weight_source.h"
#include "markbase/result.h"
#include "quant/weight_view.h"

namespace markbase::runtime {

// Nothing happens without any. What is named here outlives it.
class MappedWeights {
 public:
  // A table whose rows are looked up in the model's own file.
  void set_table(const formats::WeightSource& source, const quant::WeightView& table) {
    source_ = &source;
    table_ = table;
  }
  // Packed weights in a file of their own.
  void set_packed(const base::MappedFile& file) { packed_ = &file; }

  // These rows of the table will be looked up soon: the system may read them while other work goes
  // on.
  void prefetch(std::span<const int32_t> rows) const;
  // kBadInput when a file was truncated or written to under us: what was read since may be zeros.
  Result<void> check_intact() const;

 private:
  const formats::WeightSource* source_ = nullptr;
  quant::WeightView table_;
  const base::MappedFile* packed_ = nullptr;
};

}  // namespace markbase::runtime
