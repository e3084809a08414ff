// The checks that stand between a file's numbers and the loops that trust them.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "quant/mlx_float.h"
#include "quant/weight_view.h"

namespace markbase::quant {
namespace {

// a * b, or nullopt where it does not fit. Both are non-negative.
std::optional<int64_t> product(int64_t a, int64_t b) {
  if (a != 0 && b > std::numeric_limits<int64_t>::max() / a) return std::nullopt;
  return a * b;
}

template <size_t kCount>
bool one_of(int value, const std::array<int, kCount>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

Error wrong(const WeightView& weight, std::string_view name, const std::string& what) {
  return base::bad_input("tensor {} ({} [{}, {}]): {}", name, format_name(weight.format),
                         weight.rows, weight.cols, what);
}

// rows * cols must fit in 61 bits, so that bytes of the widest element (and bits of a row) do too.
Result<void> check_shape(const WeightView& weight, std::string_view name) {
  if (weight.rows < 1 || weight.cols < 1) {
    return wrong(weight, name, "expected at least one row and one column");
  }
  const auto elements = product(weight.rows, weight.cols);
  if (!elements || !product(*elements, 8)) {
    return wrong(weight, name, "expected a shape whose bytes can be counted in 63 bits");
  }
  return {};
}

Result<void> check_bytes(const WeightView& weight, std::string_view name, std::string_view part,
                         int64_t expected, size_t got) {
  if (static_cast<uint64_t>(expected) == got) return {};
  return wrong(weight, name, fmt::format("expected {} bytes of {}, got {}", expected, part, got));
}

Result<void> check_multiple(const WeightView& weight, std::string_view name, int64_t of) {
  if (weight.cols % of == 0) return {};
  return wrong(weight, name,
               fmt::format("expected columns in multiples of {}, got {}", of, weight.cols));
}

Result<void> check_affine(const WeightView& weight, std::string_view name) {
  constexpr std::array<int, 6> kBits = {2, 3, 4, 5, 6, 8};
  constexpr std::array<int, 3> kGroups = {32, 64, 128};
  if (!one_of(weight.bits, kBits)) {
    return wrong(weight, name,
                 fmt::format("expected 2, 3, 4, 5, 6 or 8 bits, got {}", weight.bits));
  }
  if (!one_of(weight.group_size, kGroups)) {
    return wrong(weight, name,
                 fmt::format("expected a group size of 32, 64 or 128, got {}", weight.group_size));
  }
  using tensor::DType;
  const DType dtype = weight.scale_dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return wrong(
        weight, name,
        fmt::format("expected scales of type F32, F16 or BF16, got {}", tensor::dtype_name(dtype)));
  }
  MB_TRY(check_multiple(weight, name, weight.group_size));
  MB_TRY(check_bytes(weight, name, "packed words", weight.rows * row_bytes(weight),
                     weight.data.size()));
  const int64_t scale_bytes = weight.rows * (weight.cols / weight.group_size) *
                              static_cast<int64_t>(tensor::dtype_bytes(dtype));
  MB_TRY(check_bytes(weight, name, "scales", scale_bytes, weight.scales.size()));
  return check_bytes(weight, name, "biases", scale_bytes, weight.biases.size());
}

Result<void> check_mlx_float(const WeightView& weight, const MlxFloatMode& mode,
                             std::string_view name) {
  if (weight.bits != mode.bits || weight.group_size != mode.group_size) {
    return wrong(weight, name,
                 fmt::format("expected {} bits in groups of {}, got {} in groups of {}", mode.bits,
                             mode.group_size, weight.bits, weight.group_size));
  }
  if (weight.scale_dtype != tensor::DType::kU8) {
    return wrong(
        weight, name,
        fmt::format("expected scales of type U8, got {}", tensor::dtype_name(weight.scale_dtype)));
  }
  if (!weight.biases.empty()) return wrong(weight, name, "expected no biases");
  constexpr int64_t kUnit = 32;  // of every packed format
  MB_TRY(check_multiple(weight, name, kUnit));
  MB_TRY(check_bytes(weight, name, "packed words", weight.rows * row_bytes(weight),
                     weight.data.size()));
  return check_bytes(weight, name, "scales", weight.rows * (weight.cols / mode.group_size),
                     weight.scales.size());
}

}  // namespace

Result<void> validate(const WeightView& weight, std::string_view name) {
  if (weight.format > Format::kMlxNVFP4) {
    return wrong(weight, name, fmt::format("unknown format {}", static_cast<int>(weight.format)));
  }
  MB_TRY(check_shape(weight, name));
  if (weight.format == Format::kAffine) return check_affine(weight, name);
  if (const auto mode = mlx_float_mode(weight.format)) return check_mlx_float(weight, *mode, name);
  if (!weight.scales.empty() || !weight.biases.empty()) {
    return wrong(weight, name, "expected no separate scales or biases");
  }
  MB_TRY(check_multiple(weight, name, block_shape(weight.format).elements));
  return check_bytes(weight, name, "data", weight.rows * row_bytes(weight), weight.data.size());
}

}  // namespace markbase::quant
