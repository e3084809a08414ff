#include "formats/safetensors/safetensors_file.h"

#include <algorithm>

#include "formats/broken.h"
#include "formats/byte_reader.h"
#include "formats/safetensors/safetensors_header.h"
#include "tensor/dtype.h"

namespace markbase::formats {
namespace {

using tensor::DType;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format
constexpr uint64_t kLengthBytes = 8;

constexpr DType kDTypes[] = {DType::kF64,    DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                             DType::kF8E5M2, DType::kI64, DType::kI32, DType::kI16,  DType::kI8,
                             DType::kU64,    DType::kU32, DType::kU16, DType::kU8,   DType::kBool};

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (tensor::dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::optional<quant::Format> float_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return quant::Format::kF32;
    case DType::kF16:
      return quant::Format::kF16;
    case DType::kBF16:
      return quant::Format::kBF16;
    case DType::kF8E4M3:
      return quant::Format::kF8E4M3;
    default:
      return std::nullopt;
  }
}

// Bytes of the whole tensor; nullopt where the product overflows.
std::optional<uint64_t> tensor_bytes(std::span<const uint64_t> shape, DType dtype) {
  int64_t product = static_cast<int64_t>(tensor::dtype_bytes(dtype));
  bool empty = false;
  for (const uint64_t n : shape) {
    if (n > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    if (n == 0) empty = true;
    // An axis of 0 makes the product 0, yet the other axes must multiply without overflow on their
    // own.
    if (n != 0 && __builtin_mul_overflow(product, static_cast<int64_t>(n), &product))
      return std::nullopt;
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

Result<TensorInfo> checked_tensor(const std::string& path, const SafetensorsEntry& entry,
                                  std::span<const std::byte> data) {
  const std::string what = "tensor " + shown(entry.name);
  const std::optional<DType> dtype = dtype_of(entry.dtype);
  if (!dtype) {
    return broken(path, what,
                  "a dtype of F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL",
                  shown(entry.dtype));
  }
  if (entry.begin > entry.end || entry.end > data.size()) {
    return broken(path, what,
                  fmt::format("data_offsets in order and within {} bytes of data", data.size()),
                  fmt::format("[{}, {}]", entry.begin, entry.end));
  }
  const std::optional<uint64_t> num_bytes = tensor_bytes(entry.shape, *dtype);
  if (num_bytes != entry.end - entry.begin) {
    return broken(path, what,
                  num_bytes ? fmt::format("{} bytes for {} [{}]", *num_bytes, entry.dtype,
                                          fmt::join(entry.shape, ", "))
                            : "a shape whose product is below 2^63 bytes",
                  num_bytes ? fmt::format("{} bytes in data_offsets", entry.end - entry.begin)
                            : fmt::format("[{}]", fmt::join(entry.shape, ", ")));
  }
  TensorInfo tensor;
  tensor.name = entry.name;
  tensor.type_name = entry.dtype;
  for (const uint64_t n : entry.shape) tensor.shape.push_back(static_cast<int64_t>(n));
  tensor.data = data.subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(*num_bytes));
  tensor.block_format = float_format(*dtype);
  if (!tensor.block_format) tensor.dtype = *dtype;
  return tensor;
}

// Sorted entries must follow each other without a gap and end where the data ends.
Result<void> check_layout(const std::string& path, std::span<const SafetensorsEntry> sorted,
                          uint64_t data_bytes) {
  uint64_t filled = 0;
  for (const SafetensorsEntry& entry : sorted) {
    if (entry.begin != filled) {
      return broken(
          path, "tensor " + shown(entry.name),
          fmt::format("data to begin at {}, where the tensor before it ends", filled),
          fmt::format("{} ({})", entry.begin, entry.begin < filled ? "an overlap" : "a hole"));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    return broken(path, "data", fmt::format("{} bytes, as the tensors have", filled),
                  fmt::format("{} bytes", data_bytes));
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  MB_ASSIGN(base::MappedFile mapping, base::MappedFile::open(path));
  Result<SafetensorsFile> file = parse(mapping.bytes(), path);
  // Bytes that vanished while they were parsed explain any other error.
  MB_TRY(mapping.check_intact());
  if (file.ok()) file->mapping_ = std::move(mapping);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               const std::string& path) {
  if (auto error = not_a_checkpoint(path, as_text(bytes), "a safetensors file")) return *error;
  ByteReader reader(bytes);
  uint64_t header_bytes = 0;
  if (!reader.read(&header_bytes)) {
    return broken(path, "header length at byte 0", "8 bytes",
                  fmt::format("{} bytes", bytes.size()));
  }
  if (header_bytes > kMaxHeaderBytes) {
    return broken(path, "header length at byte 0", fmt::format("at most {} bytes", kMaxHeaderBytes),
                  fmt::format("{}", header_bytes));
  }
  std::span<const std::byte> json;
  if (!reader.take(header_bytes, &json)) {
    return broken(path, "header length at byte 0",
                  fmt::format("at most the {} bytes left in the file", reader.left()),
                  fmt::format("{}", header_bytes));
  }
  MB_ASSIGN(SafetensorsHeader header, parse_safetensors_header(as_text(json), path));
  const std::span<const std::byte> data =
      bytes.subspan(static_cast<size_t>(kLengthBytes + header_bytes));

  SafetensorsFile file;
  file.path_ = path;
  file.metadata_ = std::move(header.metadata);
  // An empty tensor stands before the one that begins at the same byte.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  file.tensors_.reserve(header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) {
    MB_ASSIGN(TensorInfo tensor, checked_tensor(path, entry, data));
    file.tensors_.push_back(std::move(tensor));
  }
  MB_TRY(check_layout(path, header.entries, data.size()));
  return file;
}

}  // namespace markbase::formats
