// Calls of tools as servers write them, made ready for a chat template.
#pragma once

#include "markbase/result.h"
#include "tokenizer/chat_request.h"

namespace markbase::tokenizer {

// Puts the object in the place of every text that holds one: the "arguments" of a call are JSON
// text in the API of servers and an object in chat templates. Messages and calls of another shape
// stay as they are; the template's own checks name them. Errors (kUsage): arguments that are
// neither an object, nor a text with one (no key twice), nor null.
Result<void> read_call_arguments(ChatRequest& request);

}  // namespace markbase::tokenizer
