#include "formats/gguf/gguf_source.h"

#include <optional>

#include "formats/broken.h"

namespace markbase::formats {
namespace {

using base::Json;

constexpr int64_t kMaxSplits = 99999;  // five digits in the file name
constexpr std::string_view kSuffix = ".gguf";

// "-00001-of-00003.gguf"
std::string split_suffix(int64_t split_idx, int64_t num_splits) {
  return fmt::format("-{:05}-of-{:05}{}", split_idx + 1, num_splits, kSuffix);
}

// The number of splits that the file name speaks of, 1 when it speaks of none.
int64_t splits_in_name(const std::string& path) {
  const size_t suffix_bytes = split_suffix(0, 1).size();
  if (path.size() < suffix_bytes) return 1;
  const std::string tail = path.substr(path.size() - suffix_bytes);
  int64_t numbers[2] = {0, 0};
  for (int n = 0; n < 2; ++n) {
    for (size_t i = 0; i < 5; ++i) {
      const char c = tail[(n == 0 ? 1 : 10) + i];
      if (c < '0' || c > '9') return 1;
      numbers[n] = numbers[n] * 10 + (c - '0');
    }
  }
  return tail == split_suffix(numbers[0] - 1, numbers[1]) ? numbers[1] : 1;
}

// A key of any integer width; nullopt when it is absent.
Result<std::optional<int64_t>> integer_key(const GgufFile& file, const char* key, int64_t max) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return std::optional<int64_t>();
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) &&
                    found->get<int64_t>() >= 0 && found->get<int64_t>() <= max;
  if (!fits) {
    return broken(file.path(), "key " + shown(key), fmt::format("an integer of 0 to {}", max),
                  shown(base::dump_json(*found)));
  }
  return std::optional<int64_t>(found->get<int64_t>());
}

// 1 for a file that belongs to no set.
Result<int64_t> split_count(const GgufFile& file) {
  MB_ASSIGN(const std::optional<int64_t> count, integer_key(file, "split.count", kMaxSplits));
  const int64_t in_name = splits_in_name(file.path());
  if (!count.has_value() || *count <= 1) {
    if (in_name <= 1) return int64_t{1};
    return broken(file.path(), "key \"split.count\"",
                  fmt::format("{} as in the file name", in_name),
                  count ? fmt::format("{}", *count) : "no such key");
  }
  if (in_name != *count) {
    return broken(
        file.path(), "file name",
        fmt::format("NAME{} for a file with split.count {}", split_suffix(0, *count), *count),
        in_name == 1 ? "another name" : fmt::format("\"-of-{:05}\"", in_name));
  }
  return *count;
}

Result<void> check_split(const GgufFile& file, int64_t split_idx, int64_t num_splits) {
  MB_ASSIGN(const std::optional<int64_t> count, integer_key(file, "split.count", kMaxSplits));
  MB_ASSIGN(const std::optional<int64_t> no, integer_key(file, "split.no", kMaxSplits));
  if (count != num_splits) {
    return broken(file.path(), "key \"split.count\"", fmt::format("{}", num_splits),
                  count ? fmt::format("{}", *count) : "no such key");
  }
  if (no != split_idx) {
    return broken(file.path(), "key \"split.no\"", fmt::format("{}", split_idx),
                  no ? fmt::format("{}", *no) : "no such key");
  }
  return {};
}

Result<void> check_set(const std::vector<GgufFile>& files) {
  const auto num_splits = static_cast<int64_t>(files.size());
  int64_t num_tensors = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    MB_TRY(check_split(files[i], static_cast<int64_t>(i), num_splits));
    num_tensors += static_cast<int64_t>(files[i].tensors().size());
  }
  for (const GgufFile& file : files) {
    MB_ASSIGN(const std::optional<int64_t> expected,
              integer_key(file, "split.tensors.count", INT64_MAX));
    if (expected.has_value() && *expected != num_tensors) {
      return broken(file.path(), "key \"split.tensors.count\"",
                    fmt::format("{}, the tensors in all {} splits", num_tensors, num_splits),
                    fmt::format("{}", *expected));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<GgufSource>> GgufSource::open(const std::string& path) {
  MB_ASSIGN(GgufFile first, GgufFile::open(path));
  MB_ASSIGN(const int64_t num_splits, split_count(first));
  std::vector<GgufFile> files;
  if (num_splits == 1) {
    files.push_back(std::move(first));
    return make(std::move(files));
  }
  const std::string stem = path.substr(0, path.size() - split_suffix(0, num_splits).size());
  for (int64_t i = 0; i < num_splits; ++i) {
    const std::string split_path = stem + split_suffix(i, num_splits);
    Result<GgufFile> split = GgufFile::open(split_path);
    if (!split.ok()) {
      return base::bad_input("{} (split {} of {} of {})", split.error().message, i + 1, num_splits,
                             path);
    }
    files.push_back(*std::move(split));
  }
  return make(std::move(files));
}

Result<std::unique_ptr<GgufSource>> GgufSource::make(std::vector<GgufFile> files) {
  if (files.size() > 1) MB_TRY(check_set(files));
  auto source = std::make_unique<GgufSource>();
  source->parts_ = std::move(files);
  for (const GgufFile& part : source->parts_) {
    source->add_file(part.path(), part.tensors(), part.mapping());
  }
  MB_TRY(source->index_tensors());
  source->config_ = base::Json(source->parts_.at(0).metadata());
  return source;
}

Result<quant::WeightView> GgufSource::weight(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return broken(files()[0], "tensor " + shown(name), "to be in the file", "no such tensor");
  }
  return plain_weight(*tensor);
}

}  // namespace markbase::formats
