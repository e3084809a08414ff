// What tells a model from another one by what is in its files, wherever they lie.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "markbase/result.h"

namespace markbase::cli {

// Whether a model is read from this file, or would be if it were there: one of the set of a .gguf
// file; weights, configuration, tokenizer or template of a folder, by the names that the loader
// knows.
bool is_model_file(const std::string& model, const std::string& file);

// A hash of the names and of every byte of the files that a model is read from, by all `threads`: a
// .gguf file with the rest of its set (their names apart), or what is_model_file says of a folder.
// Copies have the same. `path`: ModelInfo::path. Says on this thread how many bytes of all it has
// read. Errors: kBadInput.
Result<uint64_t> model_content_hash(const std::string& path, int threads,
                                    const std::function<void(uint64_t, uint64_t)>& on_progress);

}  // namespace markbase::cli
