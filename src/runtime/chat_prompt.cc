#include "runtime/chat_prompt.h"

#include "base/error.h"
#include "tokenizer/chat_format.h"

namespace markbase::runtime {

bool has_chat_format(const tokenizer::Tokenizer& tokenizer) {
  return tokenizer::has_gemma3_format(tokenizer);
}

Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer,
                               std::span<const Message> messages, bool add_generation_prompt) {
  if (!has_chat_format(tokenizer)) {
    return base::bad_input(
        "{}: expected the turn markers of a chat model in the vocabulary, got none: this model "
        "only "
        "continues plain text",
        tokenizer.source());
  }
  std::vector<tokenizer::ChatMessage> turns;
  for (const Message& message : messages) turns.push_back({message.role, message.content});
  MB_ASSIGN(const auto segments,
            tokenizer::render_gemma3(turns, {.add_generation_prompt = add_generation_prompt}));
  return ChatPrompt{tokenizer::rendered_text(segments),
                    tokenizer::encode_chat(tokenizer, segments)};
}

}  // namespace markbase::runtime
