// From the "tokenizer.ggml.*" keys of a GGUF file.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/merge_list.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

using base::bad_input;

enum GgufTokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Converters mark these as user-defined so that a parser can see them in the output; they are
// control tokens all the same, and no user text may forge one.
constexpr std::string_view kSpecialSpellings[] = {
    "<start_of_image>", "<end_of_image>",   "<|channel>",       "<channel|>", "<|tool_call>",
    "<tool_call|>",     "<|tool_response>", "<tool_response|>", "<|\"|>",
};

bool is_one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Gemma 3's tokenizer.json has <mask> and <unusedN> as added tokens that are not special, while its
// GGUF files call them control tokens. The ids must be the same from both.
bool is_plain_added_token_of_gemma3(std::string_view piece) {
  return piece == "<mask>" || piece.substr(0, 7) == "<unused";
}

TokenKind kind_of(int32_t type, std::string_view piece, bool is_gemma3) {
  switch (type) {
    case kUnknown:
      return TokenKind::kUnknown;
    case kControl:
      return is_gemma3 && is_plain_added_token_of_gemma3(piece) ? TokenKind::kUserDefined
                                                                : TokenKind::kControl;
    case kUserDefined:
      return is_one_of(piece, kSpecialSpellings) ? TokenKind::kControl : TokenKind::kUserDefined;
    case kUnused:
      return TokenKind::kUnused;
    case kByte:
      return TokenKind::kByte;
    default:
      return TokenKind::kNormal;
  }
}

Result<void> check_shape(const GgufVocabulary& v, std::string_view source) {
  if (v.model != "llama" && v.model != "gemma4" && v.model != "gpt2") {
    return bad_input("{}: tokenizer.ggml.model is '{}', expected llama, gemma4 or gpt2", source,
                     v.model);
  }
  if (v.add_space_prefix) {
    return bad_input(
        "{}: tokenizer.ggml.add_space_prefix is true, expected false for a Gemma vocabulary",
        source);
  }
  if (v.tokens.empty()) return bad_input("{}: tokenizer.ggml.tokens is empty", source);
  if (v.tokens.size() > static_cast<size_t>(kMaxTokenId)) {
    return bad_input("{}: tokenizer.ggml.tokens has {} entries, expected at most {}", source,
                     v.tokens.size(), kMaxTokenId);
  }
  if (v.token_types.size() != v.tokens.size()) {
    return bad_input(
        "{}: tokenizer.ggml.token_type has {} entries, expected {} as tokenizer.ggml.tokens",
        source, v.token_types.size(), v.tokens.size());
  }
  if (!v.scores.empty() && v.scores.size() != v.tokens.size()) {
    return bad_input(
        "{}: tokenizer.ggml.scores has {} entries, expected {} as tokenizer.ggml.tokens", source,
        v.scores.size(), v.tokens.size());
  }
  if (v.scores.empty() && v.merges.empty()) {
    return bad_input("{}: neither tokenizer.ggml.merges nor tokenizer.ggml.scores is there",
                     source);
  }
  const auto nan =
      std::find_if(v.scores.begin(), v.scores.end(), [](float s) { return std::isnan(s); });
  if (nan != v.scores.end()) {
    return bad_input("{}: tokenizer.ggml.scores: entry {} is not a number", source,
                     nan - v.scores.begin());
  }
  return {};
}

Result<Vocabulary> read_pieces(const GgufVocabulary& v, std::string_view source) {
  const bool is_gemma3 =
      std::find(v.tokens.begin(), v.tokens.end(), "<start_of_turn>") != v.tokens.end();
  Vocabulary vocabulary;
  size_t num_bytes = 0;
  for (const std::string_view token : v.tokens) num_bytes += token.size();
  vocabulary.reserve(v.tokens.size(), num_bytes + 4096);
  std::string spelled;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const std::string_view token = v.tokens[id];
    const int32_t type = v.token_types[id];
    if (type < kNormal || type > kByte) {
      return bad_input("{}: tokenizer.ggml.token_type: entry {} is {}, expected 1 to 6", source, id,
                       type);
    }
    if (!is_valid_utf8(token))
      return bad_input("{}: tokenizer.ggml.tokens: entry {} is not UTF-8", source, id);
    if (type == kByte && !byte_of_piece(token)) {
      return bad_input(
          "{}: tokenizer.ggml.tokens: entry {} is a byte token spelled '{}', expected <0x00> to "
          "<0xFF>",
          source, id, token);
    }
    // User-defined runs of spaces are written with plain spaces; the vocabulary means U+2581.
    spelled.clear();
    if (type == kUserDefined && token.find(' ') != token.npos) {
      for (const char c : token) c == ' ' ? spelled.append(kSpacePiece) : spelled.append(1, c);
    }
    const std::string_view piece = spelled.empty() ? token : std::string_view(spelled);
    vocabulary.add(piece, kind_of(type, piece, is_gemma3), true);
  }
  MB_TRY(vocabulary.build_index(source));
  return vocabulary;
}

// The id of a key, or of the usual spelling where the file has no such key.
Result<int32_t> special_id(const Vocabulary& vocabulary, int64_t id, std::string_view key,
                           std::string_view spelling, std::string_view source) {
  if (id < 0) return vocabulary.find(spelling);
  if (id >= vocabulary.size()) {
    return bad_input("{}: tokenizer.ggml.{} is {}, expected less than the {} tokens", source, key,
                     id, vocabulary.size());
  }
  return static_cast<int32_t>(id);
}

// User-defined pieces rank above all others, whatever score the converter wrote for them.
std::vector<std::optional<float>> merge_scores(const GgufVocabulary& v) {
  std::vector<std::optional<float>> scores(v.tokens.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    if (v.token_types[id] == kNormal) scores[id] = v.scores[id];
    if (v.token_types[id] == kUserDefined) scores[id] = 0.0f;
  }
  return scores;
}

Result<MergeTable> read_merges(const GgufVocabulary& v, const Vocabulary& vocabulary,
                               std::string_view source) {
  if (v.merges.empty()) {
    return MergeTable::build(vocabulary, merges_from_scores(vocabulary, merge_scores(v)), source);
  }
  std::vector<Merge> merges;
  merges.reserve(v.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < v.merges.size(); ++rank) {
    MB_ASSIGN(const auto parts, split_merge(v.merges[rank], rank, source));
    MB_ASSIGN(const Merge merge,
              resolve_merge(vocabulary, parts.first, parts.second, rank, source, joined));
    merges.push_back(merge);
  }
  return MergeTable::build(vocabulary, std::move(merges), source);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufVocabulary& v, std::string_view source) {
  MB_TRY(check_shape(v, source));
  TokenizerParts parts;
  parts.source = source;
  MB_ASSIGN(parts.vocabulary, read_pieces(v, source));
  const Vocabulary& vocabulary = parts.vocabulary;
  if (v.model == "gpt2" && (vocabulary.find(kSpacePiece) < 0 || vocabulary.find("<0x00>") < 0)) {
    return bad_input(
        "{}: tokenizer.ggml.model is gpt2 with byte-level pieces; expected pieces with U+2581 and "
        "<0x00>",
        source);
  }
  MB_ASSIGN(parts.merges, read_merges(v, vocabulary, source));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    if ((is_special(kind) || kind == TokenKind::kUserDefined) && !vocabulary.piece(id).empty()) {
      parts.added_ids.push_back(id);
    }
  }
  MB_ASSIGN(parts.bos_id, special_id(vocabulary, v.bos_id, "bos_token_id", "<bos>", source));
  MB_ASSIGN(parts.eos_id, special_id(vocabulary, v.eos_id, "eos_token_id", "<eos>", source));
  MB_ASSIGN(parts.eot_id, special_id(vocabulary, v.eot_id, "eot_token_id", "", source));
  MB_ASSIGN(parts.unk_id, special_id(vocabulary, v.unk_id, "unknown_token_id", "<unk>", source));
  MB_ASSIGN(parts.pad_id, special_id(vocabulary, v.pad_id, "padding_token_id", "<pad>", source));
  parts.chat_template = v.chat_template;
  return BpeTokenizer::create(std::move(parts));
}

}  // namespace markbase::tokenizer
