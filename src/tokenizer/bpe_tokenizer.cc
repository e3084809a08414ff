#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

// Tokens that end a turn or the text, whatever the file calls its eos.
constexpr std::string_view kStopSpellings[] = {"<eos>", "<end_of_turn>", "<turn|>",
                                               "<|tool_response>"};

AddedTokens added_tokens_of(const TokenizerParts& parts) {
  std::vector<AddedTokens::Entry> entries;
  entries.reserve(parts.added_ids.size());
  for (const int32_t id : parts.added_ids) {
    entries.push_back({parts.vocabulary.piece(id), id, is_special(parts.vocabulary.kind(id))});
  }
  return AddedTokens(std::move(entries));
}

void append_with_spaces(std::string_view piece, std::string& out) {
  for (size_t at = piece.find(kSpacePiece); at != piece.npos; at = piece.find(kSpacePiece)) {
    out.append(piece.substr(0, at));
    out.push_back(' ');
    piece.remove_prefix(at + kSpacePiece.size());
  }
  out.append(piece);
}

// A group of byte tokens is text only as a whole.
void flush_bytes(std::string& bytes, std::string& out) {
  if (is_valid_utf8(bytes)) {
    out.append(bytes);
  } else {
    for (size_t i = 0; i < bytes.size(); ++i) out.append(kReplacementCharacter);
  }
  bytes.clear();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(TokenizerParts parts) {
  for (int byte = 0; byte < 256 && parts.unk_id < 0; ++byte) {
    if (parts.vocabulary.byte_id(static_cast<uint8_t>(byte)) < 0) {
      return base::bad_input(
          "{}: no token <0x{:02X}> and no unknown token; expected all 256 byte tokens",
          parts.source, byte);
    }
  }
  return std::unique_ptr<Tokenizer>(new BpeTokenizer(std::move(parts)));
}

// bpe_ looks at parts_, which is initialised before it; the object never moves.
BpeTokenizer::BpeTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      added_(added_tokens_of(parts_)),
      bpe_(parts_.vocabulary, parts_.merges, parts_.unk_id, parts_.fuse_unk) {}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text,
                                          const EncodeOptions& options) const {
  const Run run = {text.size(), options.parse_special};
  return encode_runs(text, {&run, 1}, options.add_bos);
}

std::vector<int32_t> BpeTokenizer::encode_segments(std::span<const TextSegment> segments,
                                                   bool add_bos) const {
  std::string text;
  std::vector<Run> runs;
  for (const TextSegment& segment : segments) {
    if (segment.text.empty()) continue;
    text.append(segment.text);
    if (runs.empty() || runs.back().parse_special != segment.parse_special) {
      runs.push_back({0, segment.parse_special});
    }
    runs.back().end = text.size();
  }
  return encode_runs(text, runs, add_bos);
}

std::vector<int32_t> BpeTokenizer::encode_runs(std::string_view text, std::span<const Run> runs,
                                               bool add_bos) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_bos && parts_.bos_id >= 0) ids.push_back(parts_.bos_id);
  Bpe::Scratch scratch;
  size_t plain_start = 0;
  size_t run = 0;
  for (size_t position = 0; position < text.size();) {
    if (!added_.may_begin(text[position])) {
      ++position;
      continue;
    }
    while (runs[run].end <= position) ++run;
    const auto match = added_.longest(text.substr(position), runs[run].end - position);
    if (match.id < 0) {
      ++position;
    } else if (match.special && !runs[run].parse_special) {
      // Plain text as a whole: a shorter added token inside the spelling does not count either.
      position += match.length;
    } else {
      bpe_.encode(text.substr(plain_start, position - plain_start), scratch, ids);
      ids.push_back(match.id);
      position += match.length;
      plain_start = position;
    }
  }
  bpe_.encode(text.substr(plain_start), scratch, ids);
  return ids;
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  std::string bytes;
  for (const int32_t id : ids) {
    const TokenKind token_kind = kind(id);
    const std::string_view text = piece(id);
    if (text.empty() || (skip_special && is_special(token_kind))) continue;
    if (token_kind == TokenKind::kByte) {
      bytes.push_back(static_cast<char>(*byte_of_piece(text)));
      continue;
    }
    flush_bytes(bytes, out);
    append_with_spaces(text, out);
  }
  flush_bytes(bytes, out);
  return out;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view text) const {
  const int32_t id = parts_.vocabulary.find(text);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::vector<int32_t> BpeTokenizer::extra_stop_ids() const {
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (id < 0 || id == parts_.eos_id || std::find(ids.begin(), ids.end(), id) != ids.end()) return;
    ids.push_back(id);
  };
  add(parts_.eot_id);
  for (const std::string_view spelling : kStopSpellings) {
    const int32_t id = parts_.vocabulary.find(spelling);
    if (is_special(kind(id))) add(id);
  }
  return ids;
}

std::vector<int32_t> Tokenizer::encode_segments(std::span<const TextSegment> segments,
                                                bool add_bos) const {
  std::vector<int32_t> ids = encode({}, {.add_bos = add_bos, .parse_special = false});
  for (const TextSegment& segment : segments) {
    const auto part =
        encode(segment.text, {.add_bos = false, .parse_special = segment.parse_special});
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string StreamDecoder::push(int32_t id) {
  const TokenKind kind = tokenizer_.kind(id);
  const std::string_view piece = tokenizer_.piece(id);
  std::string out;
  if (piece.empty() || (skip_special_ && is_special(kind))) return out;
  if (kind == TokenKind::kByte) {
    pending_.push_back(static_cast<char>(*byte_of_piece(piece)));
    pending_.erase(0, append_lossy(pending_, false, out));
    return out;
  }
  out = finish();
  append_with_spaces(piece, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  append_lossy(pending_, true, out);
  pending_.clear();
  return out;
}

}  // namespace markbase::tokenizer
