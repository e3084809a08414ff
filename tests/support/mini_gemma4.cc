#include "support/mini_gemma4.h"

#include <string>
#include <vector>

namespace markbase::testing {
namespace {

constexpr const char* kControl[] = {"<pad>",    "<eos>",    "<bos>",     "<unk>",     "<mask>",
                                    "<|tool>",  "<tool|>",  "<|think|>", "<|turn>",   "<turn|>",
                                    "<|image>", "<|audio>", "<|image|>", "<|audio|>", "<image|>",
                                    "<audio|>", "<|video|>"};
// Called user-defined by the files, so that other programs print them.
constexpr const char* kUserDefined[] = {"<|tool_call>",     "<tool_call|>", "<|tool_response>",
                                        "<tool_response|>", "<|\"|>",       "<|channel>",
                                        "<channel|>"};
constexpr const char* kPieces[] = {"thought", "call", "th",   "ou",  "gh",   "ll", "ca",
                                   "\n\n",    "日",   "日本", "cal", "thou", "ght"};

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> mini_gemma4(const std::string& chat_template) {
  std::vector<std::string> pieces;
  tokenizer::GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string piece, int32_t type) {
    pieces.push_back(std::move(piece));
    vocabulary.token_types.push_back(type);
  };
  for (const char* piece : kControl) add(piece, 3);
  for (const char* piece : kUserDefined) add(piece, 4);
  for (int i = 0; i < 256; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    add(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">", 6);
  }
  for (char c = ' ' + 1; c < 0x7F; ++c) add(std::string(1, c), 1);
  add("\xE2\x96\x81", 1);
  for (const char* piece : kPieces) add(piece, 1);
  vocabulary.tokens.assign(pieces.begin(), pieces.end());
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocabulary.scores.push_back(-static_cast<float>(i));
  }
  vocabulary.chat_template = chat_template;
  vocabulary.bos_id = 2;
  vocabulary.eos_id = 1;
  return std::move(tokenizer::from_gguf(vocabulary, "mini_gemma4")).value();
}

}  // namespace markbase::testing
