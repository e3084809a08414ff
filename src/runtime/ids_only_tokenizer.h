// Stands in for the tokenizer of a model whose files hold none: such a model runs from ids to ids.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

class IdsOnlyTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit IdsOnlyTokenizer(std::string source) : source_(std::move(source)) {}
  std::vector<int32_t> encode(std::string_view, const tokenizer::EncodeOptions&) const override {
    return {};
  }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  int32_t vocab_size() const override { return 0; }
  std::string_view piece(int32_t) const override { return {}; }
  tokenizer::TokenKind kind(int32_t) const override { return tokenizer::TokenKind::kUnknown; }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
  int32_t bos_id() const override { return -1; }
  int32_t eos_id() const override { return -1; }
  int32_t pad_id() const override { return -1; }
  int32_t unk_id() const override { return -1; }
  std::vector<int32_t> extra_stop_ids() const override { return {}; }
  std::string_view chat_template() const override { return {}; }
  std::string_view source() const override { return source_; }

 private:
  std::string source_;
};

}  // namespace markbase::runtime
