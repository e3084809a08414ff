// The hand-made vocabulary of tests/golden/tokenizer, in both file kinds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

// The lines of a .jsonl golden.
std::vector<base::Json> read_json_lines(const std::string& golden);

std::string tiny_json_text();
base::Json tiny_json();

// A GGUF vocabulary that owns what its views show.
struct TinyGguf {
  std::vector<std::string> pieces;
  std::vector<std::string> merges;
  GgufVocabulary vocabulary;  // with scores, without merges
};
std::unique_ptr<TinyGguf> tiny_gguf();
// Adds the merge list of tiny_tokenizer.json and drops the scores.
void use_merges(TinyGguf& gguf);

// The tokenizer of each file kind; `kind` is "json", "scores" or "merges". Aborts when it does not
// load.
std::unique_ptr<Tokenizer> tiny_tokenizer(const std::string& kind);

}  // namespace markbase::tokenizer
