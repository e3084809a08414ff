#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

bool is_fallback(TokenKind kind) { return kind == TokenKind::kByte || kind == TokenKind::kUnknown; }

char32_t first_scalar(std::string_view piece) { return decode_scalar(piece, 0).value; }

char32_t last_scalar(std::string_view piece) {
  size_t start = piece.size() - 1;
  while (start > 0 && (static_cast<uint8_t>(piece[start]) & 0xC0) == 0x80) --start;
  return decode_scalar(piece, start).value;
}

}  // namespace

Result<MergeTable> MergeTable::build(const Vocabulary& vocabulary, std::vector<Merge> merges,
                                     std::string_view source) {
  MergeTable table;
  table.merges_ = std::move(merges);
  table.merges_.shrink_to_fit();
  table.slots_.assign(std::bit_ceil(table.merges_.size() * 2 + 2), kNoRank);
  table.mask_ = table.slots_.size() - 1;
  table.shift_ = 64 - std::countr_zero(table.slots_.size());
  table.junctions_.assign((size_t{1} << kJunctionBits) / 64, 0);
  for (uint32_t rank = 0; rank < table.merges_.size(); ++rank) {
    const Merge& merge = table.merges_[rank];
    const std::string_view left = vocabulary.piece(merge.left);
    const std::string_view right = vocabulary.piece(merge.right);
    if (is_fallback(vocabulary.kind(merge.left)) || is_fallback(vocabulary.kind(merge.right))) {
      return base::bad_input(
          "{}: merge {} ('{}' '{}') joins a byte or unknown token; not supported", source, rank,
          left, right);
    }
    size_t slot = table.hash_pair(merge.left, merge.right);
    for (; table.slots_[slot] != kNoRank; slot = (slot + 1) & table.mask_) {
      const Merge& other = table.merges_[table.slots_[slot]];
      if (other.left == merge.left && other.right == merge.right) {
        return base::bad_input("{}: merge {} ('{}' '{}') repeats merge {}", source, rank, left,
                               right, table.slots_[slot]);
      }
    }
    table.slots_[slot] = rank;
    const uint32_t bit = hash_junction(last_scalar(left), first_scalar(right));
    table.junctions_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  return table;
}

std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary,
                                      std::span<const std::optional<float>> scores) {
  struct Candidate {
    float score;
    uint32_t left_length;
    uint32_t right_length;
    Merge merge;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(static_cast<size_t>(vocabulary.size()) * 2);
  std::vector<uint32_t> borders;  // where the characters of the piece begin, but for the first
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!scores[id]) continue;
    const std::string_view piece = vocabulary.piece(id);
    borders.clear();
    for (size_t i = 1; i < piece.size(); ++i) {
      if ((static_cast<uint8_t>(piece[i]) & 0xC0) != 0x80)
        borders.push_back(static_cast<uint32_t>(i));
    }
    const uint32_t length = static_cast<uint32_t>(borders.size()) + 1;
    for (uint32_t k = 0; k < borders.size(); ++k) {
      const int32_t left = vocabulary.find(piece.substr(0, borders[k]));
      if (left < 0 || !scores[left]) continue;
      const int32_t right = vocabulary.find(piece.substr(borders[k]));
      if (right < 0 || !scores[right]) continue;
      candidates.push_back({*scores[id], k + 1, length - k - 1, {left, right, id}});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left_length != b.left_length) return a.left_length > b.left_length;
    if (a.right_length != b.right_length) return a.right_length > b.right_length;
    return a.merge.result < b.merge.result;
  });
  std::vector<Merge> merges;
  merges.reserve(candidates.size());
  for (const Candidate& candidate : candidates) merges.push_back(candidate.merge);
  return merges;
}

}  // namespace markbase::tokenizer
