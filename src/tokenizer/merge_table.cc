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

namespace {

struct Candidate {
  uint32_t left_length;  // in characters
  uint32_t right_length;
  Merge merge;
};

// The ways to cut pieces in two, for some pieces at a time.
class Cutter {
 public:
  Cutter(const Vocabulary& vocabulary, std::span<const std::optional<float>> scores)
      : vocabulary_(vocabulary), scores_(scores) {}

  // Adds the cuts of these pieces whose halves are pieces with a score themselves.
  void cut(std::span<const int32_t> ids, std::vector<Candidate>* candidates) {
    searches_.clear();
    for (const int32_t id : ids) begin(id);
    for (const Cut& cut : searches_) {
      const int32_t left = vocabulary_.find(cut.left);
      if (left < 0 || !scores_[left]) continue;
      const int32_t right = vocabulary_.find(cut.right);
      if (right < 0 || !scores_[right]) continue;
      candidates->push_back({cut.left_length, cut.right_length, {left, right, cut.id}});
    }
  }

 private:
  struct Cut {
    Vocabulary::Search left;
    Vocabulary::Search right;
    uint32_t left_length;
    uint32_t right_length;
    int32_t id;
  };

  void begin(int32_t id) {
    const std::string_view piece = vocabulary_.piece(id);
    const auto is_start = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
    if (piece.empty()) return;
    const auto length =
        static_cast<uint32_t>(std::count_if(piece.begin() + 1, piece.end(), is_start) + 1);
    uint32_t left_length = 0;
    for (size_t i = 1; i < piece.size(); ++i) {
      if (!is_start(piece[i])) continue;
      ++left_length;
      searches_.push_back({vocabulary_.begin_find(piece.substr(0, i)),
                           vocabulary_.begin_find(piece.substr(i)), left_length,
                           length - left_length, id});
    }
  }

  const Vocabulary& vocabulary_;
  std::span<const std::optional<float>> scores_;
  std::vector<Cut> searches_;
};

bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.left_length != b.left_length) return a.left_length > b.left_length;
  if (a.right_length != b.right_length) return a.right_length > b.right_length;
  return a.merge.result < b.merge.result;
}

}  // namespace

std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary,
                                      std::span<const std::optional<float>> scores) {
  // Few enough that what their look-ups fetch is still in the cache when they come.
  constexpr size_t kPiecesAtOnce = 16;
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (scores[id]) ids.push_back(id);
  }
  const auto score_falls = [&](int32_t a, int32_t b) { return *scores[a] > *scores[b]; };
  // Vocabularies mostly stand in this order already.
  if (!std::ranges::is_sorted(ids, score_falls)) std::ranges::stable_sort(ids, score_falls);
  Cutter cutter(vocabulary, scores);
  std::vector<Candidate> candidates;
  candidates.reserve(ids.size() * 2);
  for (size_t i = 0; i < ids.size(); i += kPiecesAtOnce) {
    cutter.cut(std::span(ids).subspan(i, std::min(kPiecesAtOnce, ids.size() - i)), &candidates);
  }
  // They stand by falling score; those of equal score are put in order among themselves.
  const auto score_of = [&](const Candidate& candidate) { return *scores[candidate.merge.result]; };
  for (auto begin = candidates.begin(); begin != candidates.end();) {
    const auto end = std::find_if(begin, candidates.end(), [&](const Candidate& candidate) {
      return score_of(candidate) != score_of(*begin);
    });
    std::sort(begin, end, comes_before);
    begin = end;
  }
  std::vector<Merge> merges;
  merges.reserve(candidates.size());
  for (const Candidate& candidate : candidates) merges.push_back(candidate.merge);
  return merges;
}

}  // namespace markbase::tokenizer
