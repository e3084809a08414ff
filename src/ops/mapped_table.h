// A table that stays in its file: what Backend::map_table returns where the host computes.
#pragma once

#include "ops/packed_weight.h"
#include "quant/weight_view.h"

namespace markbase::ops {

class MappedTable final : public PackedWeight {
 public:
  // `view` was validated. What one lookup reads counts as its size.
  explicit MappedTable(const quant::WeightView& view)
      : PackedWeight(view.rows, view.cols, lookup_bytes(view)), view_(view) {}

  const quant::WeightView& view() const { return view_; }
  bool is_lookup_only() const override { return true; }
  // y[k] = factor * w[row, k], one rounding after the decoding.
  void look_up(int64_t row, float factor, std::span<float> y) const {
    quant::decode_row(view_, row, y);
    for (float& value : y) value *= factor;
  }

 private:
  static size_t lookup_bytes(const quant::WeightView& view) {
    const size_t bytes = view.data.size() + view.scales.size() + view.biases.size();
    return view.rows == 0 ? 0 : bytes / static_cast<size_t>(view.rows);
  }

  quant::WeightView view_;
};

}  // namespace markbase::ops
