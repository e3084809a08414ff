// Reads tokenizer.json in one pass: vocabulary and merges into flat pools, the small rest as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::tokenizer {

struct TokenizerJson {
  struct VocabEntry {
    uint32_t offset = 0;  // of the piece in `pool`
    uint32_t length = 0;
    int32_t id = 0;
  };
  struct MergeEntry {
    uint32_t offset = 0;  // of left, directly followed by right, in `pool`
    uint32_t left_length = 0;
    uint32_t right_length = 0;
  };
  std::string pool;
  std::vector<VocabEntry> vocab;
  std::vector<MergeEntry> merges;
  bool has_vocab = false;
  bool has_merges = false;
  base::Json rest;  // the document without model.vocab and model.merges

  std::string_view text(uint32_t offset, uint32_t length) const {
    return std::string_view(pool).substr(offset, length);
  }
};

// kBadInput names `source` and the key or entry at fault.
Result<TokenizerJson> read_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace markbase::tokenizer
