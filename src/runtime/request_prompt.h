// A conversation with its tools to the ids that a model starts from.
#pragma once

#include <string>

#include "markbase/options.h"
#include "markbase/result.h"
#include "runtime/chat_prompt.h"
#include "runtime/message_rules.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

// Where results of tools stand: in messages of their own, or as "tool_responses" of the message
// that called.
enum class ResultForm { kMessages, kWithCaller };

// The conversation as chat templates take it: {"messages", "tools", "add_generation_prompt",
// "enable_thinking"}. Tools given as bare functions get the form that templates know. Errors
// (kUsage): tools or arguments that are no JSON list and object.
Result<std::string> request_json(const Request& request, ResultForm form = ResultForm::kMessages,
                                 bool add_generation_prompt = true);

// The prompt of request.messages, ending with the opening of the model's turn if that is asked for.
// Errors: kUsage where the messages break a rule (message_rules.h), the format refuses them or has
// no thinking or tools, kBadInput where the model has no chat format.
Result<ChatPrompt> request_prompt(const tokenizer::Tokenizer& tokenizer, const Request& request,
                                  bool add_generation_prompt = true);

}  // namespace markbase::runtime
