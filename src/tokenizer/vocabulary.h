// The pieces of a vocabulary: one pool of bytes with offsets, and a hash of ids to find a piece by
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

inline constexpr std::string_view kSpacePiece =
    "\xE2\x96\x81";  // U+2581, how the vocabularies spell a space
inline constexpr char32_t kSpaceScalar = 0x2581;

// The value of a piece spelled <0x00> ... <0xFF>, else nothing.
std::optional<uint8_t> byte_of_piece(std::string_view piece);

// Immutable once every piece is in: add() in id order, then build_index().
class Vocabulary {
 public:
  void reserve(size_t num_pieces, size_t num_bytes);
  // The next id gets this piece. in_model: BPE may produce it; false for a token that only exists
  // as an added token. An empty piece stands for an id that the file leaves out.
  void add(std::string_view piece, TokenKind kind, bool in_model);
  // kBadInput when two ids spell the same piece, or the pool does not fit 32-bit offsets.
  Result<void> build_index(std::string_view source);

  int32_t size() const { return static_cast<int32_t>(kinds_.size()); }
  std::string_view piece(int32_t id) const {
    if (id < 0 || id >= size()) return {};
    return std::string_view(pool_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  TokenKind kind(int32_t id) const {
    return id < 0 || id >= size() ? TokenKind::kUnused : kinds_[id];
  }
  void set_kind(int32_t id, TokenKind kind) { kinds_[id] = kind; }
  // -1 when there is no such piece.
  int32_t find(std::string_view piece) const { return find({piece, hash_of(piece)}); }
  // The same in two steps, so that the memory that many look-ups need is on its way before the
  // first: begin_find() for each, then find(). The text must live until then.
  struct Search {
    std::string_view text;
    uint64_t hash = 0;
  };
  Search begin_find(std::string_view piece) const;
  int32_t find(const Search& search) const;
  // As find, for pieces that BPE may produce.
  int32_t find_in_model(std::string_view piece) const;
  // The token of a byte, -1 when the vocabulary has none.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

 private:
  static uint64_t hash_of(std::string_view text);

  std::string pool_;
  std::vector<uint32_t> offsets_ = {0};  // size() + 1
  std::vector<TokenKind> kinds_;
  std::vector<bool> in_model_;
  // Open addressing. The tag spares a look at the piece for nearly every slot that is not the one.
  struct Slot {
    int32_t id = -1;  // -1: free
    uint32_t tag = 0;
  };
  std::vector<Slot> slots_;  // a power of two of them
  std::vector<int32_t> byte_ids_ = std::vector<int32_t>(256, -1);
};

// A token that is special: left out by decode(skip_special), produced only under parse_special.
inline bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

}  // namespace markbase::tokenizer
