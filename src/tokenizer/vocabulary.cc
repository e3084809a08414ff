#include "tokenizer/vocabulary.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace markbase::tokenizer {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

// Eight bytes at a time, multiplied and folded: pieces are short, so this is one or two rounds.
uint64_t Vocabulary::hash_of(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  uint64_t hash = text.size() * kMultiplier;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word = 0;
    const size_t n = std::min<size_t>(8, text.size() - i);
    std::memcpy(&word, text.data() + i, n);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
    i += n;
  }
  return hash;
}

std::optional<uint8_t> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const int high = hex_digit(piece[3]);
  const int low = hex_digit(piece[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

void Vocabulary::reserve(size_t num_pieces, size_t num_bytes) {
  pool_.reserve(num_bytes);
  offsets_.reserve(num_pieces + 1);
  kinds_.reserve(num_pieces);
  in_model_.reserve(num_pieces);
}

void Vocabulary::add(std::string_view piece, TokenKind kind, bool in_model) {
  if (kind == TokenKind::kByte) {
    if (const auto byte = byte_of_piece(piece)) byte_ids_[*byte] = size();
  }
  pool_.append(piece);
  offsets_.push_back(static_cast<uint32_t>(pool_.size()));
  kinds_.push_back(kind);
  in_model_.push_back(in_model);
}

Result<void> Vocabulary::build_index(std::string_view source) {
  if (pool_.size() > std::numeric_limits<uint32_t>::max()) {
    return base::bad_input(
        "{}: the pieces of the vocabulary take {} bytes, expected less than 4 GiB", source,
        pool_.size());
  }
  // At most two thirds full, so a look-up that misses ends after a few probes.
  slots_.assign(std::bit_ceil(kinds_.size() + kinds_.size() / 2 + 2), Slot());
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view text = piece(id);
    if (text.empty()) continue;
    const uint64_t hash = hash_of(text);
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    size_t index = hash & mask;
    for (; slots_[index].id >= 0; index = (index + 1) & mask) {
      const Slot& slot = slots_[index];
      if (slot.tag == tag && piece(slot.id) == text) {
        return base::bad_input("{}: token '{}' has two ids, {} and {}; expected every piece once",
                               source, text, slot.id, id);
      }
    }
    slots_[index] = {id, tag};
  }
  return {};
}

Vocabulary::Search Vocabulary::begin_find(std::string_view piece) const {
  const uint64_t hash = hash_of(piece);
  if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  return {piece, hash};
}

int32_t Vocabulary::find(const Search& search) const {
  if (search.text.empty() || slots_.empty()) return -1;
  const uint32_t tag = static_cast<uint32_t>(search.hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t index = search.hash & mask; slots_[index].id >= 0; index = (index + 1) & mask) {
    const Slot& slot = slots_[index];
    if (slot.tag == tag && piece(slot.id) == search.text) return slot.id;
  }
  return -1;
}

int32_t Vocabulary::find_in_model(std::string_view text) const {
  const int32_t id = find(text);
  return id >= 0 && in_model_[id] ? id : -1;
}

}  // namespace markbase::tokenizer
