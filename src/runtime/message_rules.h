// What the messages of a conversation may hold, whatever they came in as: a chat template leaves
// out without a word what it has no place for.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "markbase/options.h"
#include "markbase/result.h"
#include "tokenizer/chat_request.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

// What a model's chat format can ask for beyond turns.
struct ChatAbilities {
  bool thinking = false;
  bool tools = false;
  bool reasoning = false;  // thoughts of earlier answers have a place
  bool developer = false;  // messages of that role have one
};
ChatAbilities chat_abilities(const tokenizer::Tokenizer& tokenizer);

// One message as the rules see it.
struct MessageFacts {
  std::optional<std::string_view> role;  // none: no text, which is found elsewhere
  bool has_text = false;                 // more than white space
  bool has_reasoning = false;
  bool has_calls = false;
  bool has_responses = false;  // beside its calls, in the same message
  bool has_call_id = false;
  bool has_name = false;
  std::vector<std::string_view> call_ids = {};  // of its calls, those that have one
  std::string_view call_id = {};  // of the call that it is the result of; empty: no text
};
// The views look into what is given.
std::vector<MessageFacts> facts_of(std::span<const Message> messages);
std::vector<MessageFacts> facts_of(const tokenizer::ChatRequest& request);

// Errors (kUsage, naming the message by number): a role that the format does not have, with those
// that it has; thoughts and calls that are not an assistant's; the id of a call or a name that is
// not of a result; a result without a message before it that calls, with an id that none of its
// calls has, or of a call that has its result; two calls of one id; any of them where the format
// has no place for it.
Result<void> check_messages(std::span<const MessageFacts> messages, const ChatAbilities& can);

// Nothing but system messages, with text in them: some formats put that text before the first
// user's alone. Errors (kUsage): nothing that a message says is in `segments`.
bool is_system_alone(std::span<const MessageFacts> messages);
Result<void> check_holds_text(std::span<const tokenizer::ChatSegment> segments);

}  // namespace markbase::runtime
