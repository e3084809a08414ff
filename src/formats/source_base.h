// What every WeightSource shares: the tensor table by name, and the mappings behind it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "formats/weight_source.h"

namespace markbase::formats {

class SourceBase : public WeightSource {
 public:
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;
  const base::Json& config() const override { return config_; }
  std::span<const std::string> files() const override { return files_; }
  std::vector<base::FileIdentity> identities() const override;
  void release(std::span<const std::byte> bytes) const override;
  void prefetch(std::span<const std::byte> bytes) const override;
  Result<void> check_intact() const override;

 protected:
  // `file_tensors` as tensors of file `path`, which becomes the next of files(). `mapping` may be
  // null (bytes in memory) and must live as long as the source.
  void add_file(const std::string& path, std::span<const TensorInfo> file_tensors,
                const base::MappedFile* mapping);
  // After the last file. Errors: a name that two files hold.
  Result<void> index_tensors();
  const std::string& file_of(const TensorInfo& tensor) const;
  // A tensor whose bytes alone are the weight: leading axes flattened, rank 0 and 1 as one row.
  // Errors: a type that is no weight format.
  Result<quant::WeightView> plain_weight(const TensorInfo& tensor) const;

  base::KeptJson config_;

 private:
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> index_;  // looks into tensors_
  std::vector<std::string> files_;
  std::vector<const base::MappedFile*> mappings_;
};

// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);
// Product of all axes but the last, and the last; {1, 1} for rank 0. Checked when the file was
// read.
struct RowsCols {
  int64_t rows;
  int64_t cols;
};
RowsCols flattened(std::span<const int64_t> shape);

}  // namespace markbase::formats
