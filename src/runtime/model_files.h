// What stands beside the weights: tokenizer, chat template, generation defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "markbase/options.h"
#include "markbase/result.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

enum class PathKind { kDirectory, kGguf };

// A model path as the readers take it: a directory in the Hugging Face layout, or a GGUF file. A
// directory without config.json that holds one GGUF model stands for that file.
struct ModelPath {
  PathKind kind = PathKind::kDirectory;
  std::string path;
};
// Errors (kBadInput): missing, empty, neither of the two kinds.
Result<ModelPath> open_model_path(const std::string& path);

// The first file of a split GGUF set, where the metadata stand; the path itself for a single file.
std::string first_split(const std::string& path);

// Whether there is one to load.
Result<bool> has_tokenizer(const ModelPath& path);
// Reads tokenizer.json or the GGUF's vocabulary; needs no weights.
Result<std::unique_ptr<tokenizer::Tokenizer>> load_tokenizer(const ModelPath& path);

// Where load_tokenizer takes a chat template from, if there is one: a file, or a key of it.
std::string chat_template_place(const ModelPath& path);

// Defaults for generating, from generation_config.json and config.json, or GGUF metadata.
struct GenerationConfig {
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;
  std::vector<int32_t> suppress_ids;
};
// `config`: WeightSource::config(). Errors (kBadInput): a value of the wrong type or out of range.
Result<GenerationConfig> load_generation_config(const ModelPath& path, const base::Json& config,
                                                const tokenizer::Tokenizer& tokenizer,
                                                int64_t vocab_size);

// The whole file. Errors (kBadInput): missing, unreadable, larger than `most_bytes`.
Result<std::string> read_file(const std::string& path, uint64_t most_bytes = uint64_t{1} << 30);

}  // namespace markbase::runtime
