// A GGUF checkpoint as a WeightSource: one file, or all splits of a set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/gguf/gguf_file.h"
#include "formats/source_base.h"

namespace markbase::formats {

class GgufSource final : public SourceBase {
 public:
  // `path` may be any split NAME-00001-of-00003.gguf; the others are looked for beside it.
  // Errors: those of GgufFile, a split that is missing or belongs to another set, tensor counts.
  static Result<std::unique_ptr<GgufSource>> open(const std::string& path);
  // The files of a whole set in order, already opened.
  static Result<std::unique_ptr<GgufSource>> make(std::vector<GgufFile> files);

  FileKind kind() const override { return FileKind::kGguf; }
  Result<quant::WeightView> weight(std::string_view name) const override;
  // parts()[0] holds the metadata, so also the long arrays of the tokenizer.
  std::span<const GgufFile> parts() const { return parts_; }

 private:
  std::vector<GgufFile> parts_;
};

}  // namespace markbase::formats
