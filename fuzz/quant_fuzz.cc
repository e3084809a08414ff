// Weights of every format with hostile shapes over bytes of any length: what validate() lets
// through must decode without reading past its bytes.
#include <cstdint>
#include <cstring>
#include <vector>

#include "quant/weight_view.h"

namespace {

using markbase::quant::Format;
using markbase::quant::WeightView;

// Takes numbers off the front of the input; zeros once it is empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <class T>
  T take() {
    T value{};
    const size_t count = size_ < sizeof(T) ? size_ : sizeof(T);
    if (count != 0) std::memcpy(&value, data_, count);
    skip(count);
    return value;
  }
  // A copy in a block of its own, so that a read past its end is seen.
  std::vector<std::byte> bytes(size_t count) {
    count = size_ < count ? size_ : count;
    std::vector<std::byte> copy(count);
    if (count != 0) std::memcpy(copy.data(), data_, count);
    skip(count);
    copy.shrink_to_fit();
    return copy;
  }
  size_t size() const { return size_; }

 private:
  void skip(size_t count) {
    data_ += count;
    size_ -= count;
  }
  const uint8_t* data_;
  size_t size_;
};

void decode_all(const WeightView& weight) {
  const auto cols = static_cast<size_t>(weight.cols);
  std::vector<float> values(cols);
  std::vector<uint8_t> codes(cols);
  const auto layout = markbase::quant::grouped_layout(weight);
  for (int64_t row = 0; row < weight.rows; ++row) {
    markbase::quant::decode_row(weight, row, values);
    if (!layout) continue;
    const size_t groups = cols / static_cast<size_t>(layout->group_size);
    std::vector<float> scales(groups), offsets(layout->has_offset ? groups : 0);
    markbase::quant::unpack_codes(weight, row, codes);
    markbase::quant::unpack_scales(weight, row, scales, offsets);
    if (layout->scale_kind != markbase::quant::ScaleKind::kSub) continue;
    std::vector<uint16_t> d(cols / 256), dmin(cols / 256);
    std::vector<uint8_t> sub(groups), submin(groups);
    markbase::quant::unpack_sub_scales(weight, row, {d, dmin, sub, submin});
  }
}

// Numbers as they stand (hostile) or small, with the sizes that would be right for them.
WeightView shape_from(Input& input, bool fitting) {
  WeightView weight;
  weight.format = static_cast<Format>(input.take<uint8_t>() % 23);  // two of them do not exist
  if (!fitting) {
    weight.rows = input.take<int64_t>();
    weight.cols = input.take<int64_t>();
    weight.bits = input.take<int8_t>();
    weight.group_size = input.take<int16_t>();
    weight.scale_dtype = static_cast<markbase::tensor::DType>(input.take<uint8_t>() % 15);
    return weight;
  }
  constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
  weight.rows = 1 + input.take<uint8_t>() % 3;
  weight.bits = kBits[input.take<uint8_t>() % 6];
  weight.group_size = 32 << (input.take<uint8_t>() % 3);
  weight.scale_dtype = static_cast<markbase::tensor::DType>(input.take<uint8_t>() % 3);
  weight.cols = 32 * (1 + input.take<uint8_t>() % 20);
  return weight;
}

size_t scale_bytes(const WeightView& weight) {
  return static_cast<size_t>(weight.rows * (weight.cols / weight.group_size)) *
         markbase::tensor::dtype_bytes(weight.scale_dtype);
}

void as_float_mode(WeightView* weight) {
  weight->bits = weight->format == Format::kMlxMXFP8 ? 8 : 4;
  weight->group_size = weight->format == Format::kMlxNVFP4 ? 16 : 32;
  weight->scale_dtype = markbase::tensor::DType::kU8;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const bool fitting = input.take<uint8_t>() % 4 != 0;
  WeightView weight = shape_from(input, fitting);
  std::vector<std::byte> words, scales, biases;
  const bool known = weight.format <= Format::kMlxNVFP4;
  if (fitting && known) {
    const bool affine = weight.format == Format::kAffine;
    if (weight.format > Format::kAffine) as_float_mode(&weight);
    scales = input.bytes(is_mlx(weight.format) ? scale_bytes(weight) : 0);
    biases = input.bytes(affine ? scale_bytes(weight) : 0);
    words = input.bytes(static_cast<size_t>(weight.rows * row_bytes(weight)));
    // Input that ends early stands for zeros, else few inputs would pass the checks.
    if (is_mlx(weight.format)) scales.resize(scale_bytes(weight));
    if (affine) biases.resize(scale_bytes(weight));
    words.resize(static_cast<size_t>(weight.rows * row_bytes(weight)));
  } else {
    scales = input.bytes(input.take<uint8_t>());
    biases = input.bytes(input.take<uint8_t>());
    words = input.bytes(input.size());
  }
  words.shrink_to_fit();
  scales.shrink_to_fit();
  biases.shrink_to_fit();
  weight.data = words;
  weight.scales = scales;
  weight.biases = biases;
  if (validate(weight, "fuzz").ok()) decode_all(weight);
  return 0;
}
