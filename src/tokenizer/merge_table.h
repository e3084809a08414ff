// The merges of a BPE vocabulary: (left id, right id) -> (rank, result id), and the junction
// filter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {

struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Immutable once every merge is in. About 20 bytes a merge.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // `merges` in rank order, lowest first. kBadInput when a pair is there twice, or a part is a byte
  // or unknown token (those come from byte fallback, after which nothing may be merged).
  static Result<MergeTable> build(const Vocabulary& vocabulary, std::vector<Merge> merges,
                                  std::string_view source);

  uint32_t rank(int32_t left, int32_t right) const {
    for (size_t slot = hash_pair(left, right);; slot = (slot + 1) & mask_) {
      const uint32_t entry = slots_[slot];
      if (entry == kNoRank) return kNoRank;
      const Merge& merge = merges_[entry];
      if (merge.left == left && merge.right == right) return entry;
    }
  }
  int32_t result(uint32_t rank) const { return merges_[rank].result; }
  // False: no merge has a left part that ends in `before` and a right part that begins with
  // `after`, so no token can reach over this border and the text may be cut there. True may be a
  // false alarm.
  bool may_join(char32_t before, char32_t after) const {
    const uint32_t bit = hash_junction(before, after);
    return (junctions_[bit / 64] >> (bit % 64)) & 1;
  }
  size_t size() const { return merges_.size(); }

 private:
  static constexpr uint32_t kJunctionBits = 19;  // 64 KiB; Gemma's 34,000 pairs fill 6 % of it
  static uint32_t hash_junction(char32_t before, char32_t after) {
    const uint64_t key = (uint64_t{before} << 32) | after;
    return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >> (64 - kJunctionBits));
  }
  size_t hash_pair(int32_t left, int32_t right) const {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  std::vector<Merge> merges_;    // the index is the rank
  std::vector<uint32_t> slots_;  // open addressing of ranks, a power of two, at most half full
  std::vector<uint64_t> junctions_;
  size_t mask_ = 0;
  int shift_ = 0;  // leaves the top bits of the product, which every bit of the key has reached
};

// The merge list that a vocabulary of scores stands for: every pair of mergeable pieces whose
// concatenation is one, by score descending, then length of left and of right in characters
// descending, then id. `scores`: one a token, nothing for a token that takes part in no merge.
std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary,
                                      std::span<const std::optional<float>> scores);

}  // namespace markbase::tokenizer
