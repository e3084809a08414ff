// Tokenizer of a model, loadable without its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/export.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase {

class MB_EXPORT Tokenizer {
 public:
  // path: a directory with tokenizer.json, or a GGUF with or without weights.
  static Result<Tokenizer> load(const std::string& path);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // parse_special: control-token spellings become tokens; otherwise they are plain text.
  std::vector<int32_t> encode(std::string_view text, bool add_bos, bool parse_special) const;
  // Errors: kUsage for an id outside the vocabulary.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const;

  // The prompt of a conversation in the model's chat format. Errors: kUsage where the format
  // refuses the messages (roles that do not alternate), kBadInput where the model has no chat
  // format.
  struct Prompt {
    std::string text;
    std::vector<int32_t> ids;
    std::vector<std::string> ignored;  // options that the model's template does not know
  };
  Result<Prompt> chat_prompt(std::span<const Message> messages, bool add_generation_prompt) const;
  // The same for a JSON object: "messages" with tool calls (arguments as an object, or as the JSON
  // text of one, as servers have them), reasoning and parts, "tools", "enable_thinking",
  // "preserve_thinking", "add_generation_prompt", "continue_final_message". Pictures, sounds and
  // videos are placeholders in the text. Errors also: kUsage for a key that would be lost,
  // kBadInput for text that is no JSON.
  Result<Prompt> chat_prompt(std::string_view request) const;

  int64_t vocab_size() const;

 private:
  struct MB_LOCAL Impl;
  MB_LOCAL explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend class TokenizerAccess;
};

}  // namespace markbase
