// Messages to ids through the chat format of the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/options.h"
#include "markbase/result.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<std::string> ignored;  // options that the model's template does not know
};

// The files have a chat template, or the vocabulary holds the turn markers of a format we know.
bool has_chat_format(const tokenizer::Tokenizer& tokenizer);
// Of messages that have nothing beside role and content; others: request_prompt(). Errors: kUsage
// where the messages break a rule (message_rules.h) or the format refuses them, kBadInput where the
// model has no chat format.
Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer,
                               std::span<const Message> messages, bool add_generation_prompt);
// The same for a request as JSON (tokenizer/chat_request.h), where the arguments of a call may be
// JSON text, as servers have them: the object in it goes to the template. Placeholders of media
// stay in the text with allow_media; without it they are refused.
Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer, std::string_view request,
                               bool allow_media);

}  // namespace markbase::runtime
