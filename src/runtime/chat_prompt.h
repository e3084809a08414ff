// Messages to ids through the chat format of the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "markbase/options.h"
#include "markbase/result.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
};

// The vocabulary holds the turn markers of a format we know.
bool has_chat_format(const tokenizer::Tokenizer& tokenizer);
// Errors: kUsage where the format refuses the messages, kBadInput where the model has no chat
// format.
Result<ChatPrompt> chat_prompt(const tokenizer::Tokenizer& tokenizer,
                               std::span<const Message> messages, bool add_generation_prompt);

}  // namespace markbase::runtime
