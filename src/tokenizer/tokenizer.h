// Text to ids and back, for the Gemma vocabularies (BPE over Unicode scalars with byte fallback).
//
// The same ids come from a tokenizer.json (merge list) and from GGUF metadata (merge list or
// SentencePiece scores). Immutable after loading, so safe to use from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"

namespace markbase::tokenizer {

struct EncodeOptions {
  bool add_bos = false;
  // true: spellings of control tokens in the text become those tokens; false: they are plain text.
  // Added tokens that are not special (runs of newlines, HTML tags in Gemma 3) are matched either
  // way.
  bool parse_special = false;
};

// A part of a text: message text has parse_special false, what a template wrote has true.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;
};

enum class TokenKind : uint8_t { kNormal, kControl, kUserDefined, kByte, kUnknown, kUnused };

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Never fails: bytes that are not UTF-8 become byte tokens one by one. O(n log n) in the text
  // length.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // The ids of the concatenated segments, as if they were one text: a border stops neither merges
  // nor the added tokens that are not special. A special token is only seen inside neighbouring
  // segments that all have parse_special, so no message text can forge one or finish one. Unless
  // overridden, the segments are encoded one by one.
  virtual std::vector<int32_t> encode_segments(std::span<const TextSegment> segments,
                                               bool add_bos) const;
  // The text of ids; skip_special leaves out control tokens. Ill-formed byte groups give U+FFFD per
  // byte.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  virtual int32_t vocab_size() const = 0;
  // The piece as the vocabulary spells it ("▁the", "<0x0A>"); empty for an id out of range.
  virtual std::string_view piece(int32_t id) const = 0;
  virtual TokenKind kind(int32_t id) const = 0;
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;
  virtual int32_t bos_id() const = 0;  // -1: none
  virtual int32_t eos_id() const = 0;
  virtual int32_t pad_id() const = 0;
  virtual int32_t unk_id() const = 0;
  // end-of-turn ids known from the files besides eos (GGUF eot_token_id), for stopping.
  virtual std::vector<int32_t> extra_stop_ids() const = 0;
  // Jinja chat template found beside or inside the file; empty when there is none.
  virtual std::string_view chat_template() const = 0;
  virtual std::string_view source() const = 0;  // path, for messages
};

// Streaming decode: push ids, get text that never ends inside a character. finish() gives the rest
// (incomplete bytes as U+FFFD).
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  std::string push(int32_t id);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of an incomplete UTF-8 sequence from byte tokens
};

// `tokenizer_json`: content of tokenizer.json; `tokenizer_config`: content of tokenizer_config.json
// or "". `source` names the file in errors. Errors (kBadInput) name the key or entry at fault.
Result<std::unique_ptr<Tokenizer>> from_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config,
                                                       std::string_view chat_template,
                                                       std::string_view source);

// What the "tokenizer.ggml.*" keys of a GGUF say. The views look into the mapping and need to live
// only until from_gguf returns.
struct GgufVocabulary {
  std::string model;  // "llama", "gemma4", "gpt2"
  std::string pre;    // tokenizer.ggml.pre, may be empty
  std::vector<std::string_view> tokens;
  std::vector<float> scores;  // empty or one per token
  std::vector<int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string_view> merges;  // "left right"; empty where scores rule
  int64_t bos_id = -1, eos_id = -1, eot_id = -1, unk_id = -1, pad_id = -1;
  bool add_space_prefix = false;
  std::string chat_template;
};
Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufVocabulary& vocabulary,
                                             std::string_view source);

}  // namespace markbase::tokenizer
