// Gemma 4's control tokens over a vocabulary of single bytes and some letters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

inline const std::vector<std::string>& gemma4_control_tokens() {
  static const std::vector<std::string> kTokens = {
      "<pad>",
      "<eos>",
      "<bos>",
      "<unk>",
      "<mask>",
      "<|tool>",
      "<tool|>",
      "<|tool_call>",
      "<tool_call|>",
      "<|tool_response>",
      "<tool_response|>",
      "<|\"|>",
      "<|think|>",
      "<|channel>",
      "<channel|>",
      "<|turn>",
      "<turn|>",
      "<|image>",
      "<|audio>",
      "<|image|>",
      "<|audio|>",
      "<image|>",
      "<audio|>",
      "<|video|>",
  };
  return kTokens;
}

inline std::unique_ptr<Tokenizer> small_gemma4(const std::string& chat_template) {
  std::vector<std::string> pieces = gemma4_control_tokens();
  GgufVocabulary vocabulary;
  vocabulary.model = "gemma4";
  vocabulary.token_types.assign(pieces.size(), 3);
  vocabulary.token_types[3] = 2;
  for (int i = 0; i < 256; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    pieces.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
    vocabulary.token_types.push_back(6);
  }
  for (const char* piece :
       {"\n", "<", ">", "|", "<|", "|>", "turn", "tu", "rn", "t", "u", "r", "n", "\u2581"}) {
    pieces.push_back(piece);
    vocabulary.token_types.push_back(1);
  }
  const std::vector<std::string> merges = {"< |", "| >", "t u", "r n", "tu rn"};
  vocabulary.tokens.assign(pieces.begin(), pieces.end());
  vocabulary.merges.assign(merges.begin(), merges.end());
  vocabulary.chat_template = chat_template;
  auto tokenizer = from_gguf(vocabulary, "small Gemma 4");
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace markbase::tokenizer
