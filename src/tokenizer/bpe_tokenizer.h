// The one Tokenizer there is: vocabulary, merges and added tokens, whatever file they came from.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {

// What a loader found out.
struct TokenizerParts {
  Vocabulary vocabulary;  // indexed
  MergeTable merges;
  std::vector<int32_t>
      added_ids;  // ids of the added tokens; is_special(kind) says which are special
  int32_t bos_id = -1, eos_id = -1, pad_id = -1, unk_id = -1;
  int32_t eot_id = -1;
  bool fuse_unk = true;
  std::string chat_template;
  std::string source;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // kBadInput when a character or byte could get no token at all.
  static Result<std::unique_ptr<Tokenizer>> create(TokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<int32_t> encode_segments(std::span<const TextSegment> segments,
                                       bool add_bos) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  int32_t vocab_size() const override { return parts_.vocabulary.size(); }
  std::string_view piece(int32_t id) const override { return parts_.vocabulary.piece(id); }
  TokenKind kind(int32_t id) const override { return parts_.vocabulary.kind(id); }
  std::optional<int32_t> find(std::string_view piece) const override;
  int32_t bos_id() const override { return parts_.bos_id; }
  int32_t eos_id() const override { return parts_.eos_id; }
  int32_t pad_id() const override { return parts_.pad_id; }
  int32_t unk_id() const override { return parts_.unk_id; }
  std::vector<int32_t> extra_stop_ids() const override;
  std::string_view chat_template() const override { return parts_.chat_template; }
  std::string_view source() const override { return parts_.source; }

 private:
  // A stretch of neighbouring segments of one kind; it ends at byte `end` of the whole text.
  struct Run {
    size_t end = 0;
    bool parse_special = false;
  };

  explicit BpeTokenizer(TokenizerParts parts);
  std::vector<int32_t> encode_runs(std::string_view text, std::span<const Run> runs,
                                   bool add_bos) const;

  TokenizerParts parts_;
  AddedTokens added_;
  Bpe bpe_;
};

}  // namespace markbase::tokenizer
