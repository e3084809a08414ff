#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

// Up to here scanning all pairs for the lowest is quicker than a heap.
constexpr size_t kShortPart = 40;
// Heap entries have 32 bits of index. A cut here can only be met by one word of two billion
// characters.
constexpr size_t kMaxPart = size_t{1} << 31;

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const MergeTable& merges, int32_t unk_id, bool fuse_unk)
    : vocabulary_(vocabulary), merges_(merges), unk_id_(unk_id), fuse_unk_(fuse_unk) {
  space_ = vocabulary.find_in_model(kSpacePiece);
  for (int c = 0; c < 128; ++c) {
    const char character = static_cast<char>(c);
    ascii_[c] = c == ' ' ? space_ : vocabulary.find_in_model({&character, 1});
  }
}

int32_t Bpe::symbol_of(std::string_view character, char32_t scalar) const {
  return scalar < 128 ? ascii_[scalar] : vocabulary_.find_in_model(character);
}

void Bpe::encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
  scratch.symbols.clear();
  char32_t previous = 0;
  bool after_unk = false;
  for (size_t i = 0; i < text.size();) {
    const Scalar scalar = decode_scalar(text, i);
    const std::string_view character = text.substr(i, scalar.valid ? scalar.length : 1);
    i += character.size();
    const int32_t symbol = scalar.valid ? symbol_of(character, scalar.value) : -1;
    if (symbol < 0) {
      merge(scratch, ids);
      const std::string_view spelled =
          scalar.valid && scalar.value == ' ' ? kSpacePiece : character;
      after_unk = append_fallback(spelled, after_unk, ids);
      continue;
    }
    after_unk = false;
    const char32_t value = scalar.value == ' ' ? kSpaceScalar : scalar.value;
    // Words end where no token can reach over the border; what is left to merge stays short.
    if (!scratch.symbols.empty() &&
        (!merges_.may_join(previous, value) || scratch.symbols.size() == kMaxPart)) {
      merge(scratch, ids);
    }
    scratch.symbols.push_back(symbol);
    previous = value;
  }
  merge(scratch, ids);
}

bool Bpe::append_fallback(std::string_view character, bool after_unk,
                          std::vector<int32_t>& ids) const {
  const bool has_all = std::all_of(character.begin(), character.end(), [&](char c) {
    return vocabulary_.byte_id(static_cast<uint8_t>(c)) >= 0;
  });
  if (has_all) {
    for (const char c : character) ids.push_back(vocabulary_.byte_id(static_cast<uint8_t>(c)));
    return false;
  }
  if (unk_id_ >= 0 && !(fuse_unk_ && after_unk)) ids.push_back(unk_id_);
  return true;
}

// Merges the symbols of the part, appends what remains and empties the part.
void Bpe::merge(Scratch& scratch, std::vector<int32_t>& ids) const {
  if (scratch.symbols.size() > 1) {
    if (scratch.symbols.size() <= kShortPart) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
  }
  for (const int32_t symbol : scratch.symbols) {
    if (symbol >= 0) ids.push_back(symbol);
  }
  scratch.symbols.clear();
}

void Bpe::merge_short(Scratch& scratch) const {
  int32_t* symbols = scratch.symbols.data();
  size_t count = scratch.symbols.size();
  uint32_t ranks[kShortPart];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t best = std::min_element(ranks, ranks + count - 1) - ranks;
    if (ranks[best] == MergeTable::kNoRank) break;
    symbols[best] = merges_.result(ranks[best]);
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    --count;
    if (best + 1 < count) {
      std::copy(ranks + best + 2, ranks + count, ranks + best + 1);
      ranks[best] = merges_.rank(symbols[best], symbols[best + 1]);
    }
    if (best > 0) ranks[best - 1] = merges_.rank(symbols[best - 1], symbols[best]);
  }
  scratch.symbols.resize(count);
}

// A heap of (rank, index) whose entries are never removed: one is stale when the rank kept at its
// index has changed. A pair's rank names the pair, and a symbol only grows, so a stale rank cannot
// come back.
void Bpe::merge_long(Scratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  std::vector<uint32_t>& ranks = scratch.ranks;
  std::vector<uint32_t>& next = scratch.next;
  std::vector<uint32_t>& previous = scratch.previous;
  std::vector<uint64_t>& heap = scratch.heap;
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  ranks.resize(count);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto entry = [&](uint32_t index) { return (uint64_t{ranks[index]} << 32) | index; };
  for (uint32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;  // of the first one never used
    next[i] = i + 1;
    ranks[i] = i + 1 < count ? merges_.rank(symbols[i], symbols[i + 1]) : MergeTable::kNoRank;
    if (ranks[i] != MergeTable::kNoRank) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](uint32_t index) {
    ranks[index] = next[index] < count ? merges_.rank(symbols[index], symbols[next[index]])
                                       : MergeTable::kNoRank;
    if (ranks[index] == MergeTable::kNoRank) return;
    heap.push_back(entry(index));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const uint32_t index = static_cast<uint32_t>(top);
    const uint32_t rank = static_cast<uint32_t>(top >> 32);
    if (ranks[index] != rank) continue;
    const uint32_t gone = next[index];
    symbols[index] = merges_.result(rank);
    symbols[gone] = -1;
    ranks[gone] = MergeTable::kNoRank;
    next[index] = next[gone];
    if (next[index] < count) previous[next[index]] = index;
    update(index);
    if (index > 0) update(previous[index]);
  }
}

}  // namespace markbase::tokenizer
