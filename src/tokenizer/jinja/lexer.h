// A template's source as tokens, with Jinja's whitespace control (trim_blocks and lstrip_blocks on,
// as transformers sets them).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"

namespace markbase::tokenizer::jinja {

enum class TokenType : uint8_t {
  kData,  // text outside of tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;     // of a string: what it stands for; of a number: without underscores
  uint32_t offset = 0;  // in the source
};

// Line breaks as "\n", without the last one: what offsets count in.
std::string normalize_source(std::string_view source);

// "line 3, column 5", counted from 1 in characters.
std::string place_of(std::string_view source, size_t offset);

// Errors (kBadInput) say where and what. The last token is kEnd.
Result<std::vector<Token>> tokenize(std::string_view normalized);

}  // namespace markbase::tokenizer::jinja
