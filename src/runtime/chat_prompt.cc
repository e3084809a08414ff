#include "runtime/chat_prompt.h"

#include "base/error.h"
#include "runtime/message_rules.h"
#include "tokenizer/call_arguments.h"
#include "tokenizer/chat_template.h"

namespace markbase::runtime {
namespace {

Result<ChatPrompt> prompt_of(const tokenizer::Tokenizer& tokenizer, tokenizer::ChatRequest request,
                             bool allow_media) {
  MB_ASSIGN(const auto format, tokenizer::ChatTemplate::create(tokenizer));
  if (!format) {
    return base::bad_input(
        "{}: expected a chat template, or the turn markers of a chat model in the vocabulary, got "
        "neither: this model only continues plain text",
        tokenizer.source());
  }
  const std::vector<MessageFacts> facts = facts_of(request);
  MB_TRY(check_messages(facts, chat_abilities(tokenizer)));
  const bool system_alone = is_system_alone(facts);
  MB_ASSIGN(auto chat, format->render(std::move(request)));
  if (system_alone) MB_TRY(check_holds_text(chat.segments));
  if (chat.num_media > 0 && !allow_media) {
    return base::usage_error(
        "messages: {} pictures, sounds or videos, which this build cannot take yet",
        chat.num_media);
  }
  return ChatPrompt{tokenizer::rendered_text(chat.segments),
                    tokenizer::encode_chat(tokenizer, chat.segments), std::move(chat.ignored)};
}

}  // namespace

bool has_chat_format(const tokenizer::Tokenizer& tokenizer) {
  return !tokenizer.chat_template().empty() || tokenizer::has_gemma3_format(tokenizer) ||
         tokenizer::has_gemma4_format(tokenizer);
}

Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer,
                               std::span<const Message> messages, bool add_generation_prompt) {
  if (messages.empty())
    return base::usage_error("messages: the list is empty, expected at least one message");
  std::vector<tokenizer::ChatMessage> turns;
  for (const Message& message : messages) turns.push_back({message.role, message.content});
  return prompt_of(tokenizer, tokenizer::chat_request_of(turns, add_generation_prompt), false);
}

Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer, std::string_view request,
                               bool allow_media) {
  MB_ASSIGN(auto parsed, tokenizer::parse_chat_request(request));
  MB_TRY(tokenizer::read_call_arguments(parsed));
  return prompt_of(tokenizer, std::move(parsed), allow_media);
}

}  // namespace markbase::runtime
