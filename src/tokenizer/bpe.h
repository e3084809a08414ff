// Byte-pair encoding of a span without added tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {

// Symbols begin as characters (a space as U+2581); the adjacent pair of the lowest rank is merged,
// leftmost on ties, until none is in the table. A character that is no piece becomes its byte
// tokens, a byte that is not UTF-8 its own. Immutable; the working memory is the caller's.
class Bpe {
 public:
  // Both must outlive the object. unk_id (or -1) stands for a character whose bytes have no tokens;
  // fuse_unk: neighbouring ones become one.
  Bpe(const Vocabulary& vocabulary, const MergeTable& merges, int32_t unk_id, bool fuse_unk);

  struct Scratch {
    std::vector<int32_t> symbols;  // of the part being merged; -1 where merged away
    std::vector<uint32_t> ranks;   // of the pair (symbol, next one)
    std::vector<uint32_t> next;    // indices into symbols
    std::vector<uint32_t> previous;
    std::vector<uint64_t> heap;  // (rank, index)
  };
  // Appends the ids of `text`. O(n log n).
  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  int32_t symbol_of(std::string_view character, char32_t scalar) const;
  void merge(Scratch& scratch, std::vector<int32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  bool append_fallback(std::string_view character, bool after_unk, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  const MergeTable& merges_;
  int32_t unk_id_;
  bool fuse_unk_;
  std::array<int32_t, 128> ascii_;  // symbol of each ASCII character, -1 none
  int32_t space_;
};

}  // namespace markbase::tokenizer
