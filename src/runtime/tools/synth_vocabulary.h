// A made-up vocabulary of any size with control tokens at the places where Gemma has them, bytes,
// characters and short pieces of letters: any text can be encoded, at two or three letters a token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace markbase::tools {

struct SynthVocabulary {
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;       // as in GGUF files: 1 normal, 2 unknown, 3 control, 6 byte
  std::vector<std::string> merges;  // "left right"
  int32_t end_of_turn_id = 0;
};

// size >= 400. From 262144 on, control tokens and bytes have their usual ids; else they stand at
// the front.
SynthVocabulary synth_vocabulary(int64_t size, bool gemma4);
std::string synth_tokenizer_json(const SynthVocabulary& vocabulary);
std::string synth_tokenizer_config(bool gemma4);

}  // namespace markbase::tools
