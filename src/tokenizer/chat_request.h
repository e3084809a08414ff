// What a conversation is given as, made ready for a chat template.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/chat_format.h"
#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer {

// A JSON object:
//   messages               list of {"role", "content", ...}; content is a text, a list of parts
//                          {"type": "text", "text"} or {"type": "image" | "image_url" | "audio" |
//                          "input_audio" | "video"}, or left out. An assistant's message may have
//                          tool_calls, tool_responses, reasoning_content (also called reasoning or
//                          thinking); a tool's message tool_call_id and name.
//   tools                  list of objects
//   add_generation_prompt, enable_thinking, preserve_thinking    true or false
//   continue_final_message true, or the name of the message's field that is to be continued
// and any variable that the template itself speaks of. Keys with null are as if they were not
// there.
struct ChatRequest {
  std::unique_ptr<jinja::Arena> arena;
  jinja::Value messages;                                             // a list of dicts
  std::vector<std::pair<std::string_view, jinja::Value>> variables;  // all others, by name
  std::string continue_field;  // of the last message; "": nothing is continued
  size_t num_media = 0;        // parts that are not text
};

// Errors: kBadInput for text that is no JSON, kUsage for an object of another shape.
Result<ChatRequest> parse_chat_request(std::string_view json);
ChatRequest chat_request_of(std::span<const ChatMessage> messages, bool add_generation_prompt);

// The word of a template is looked for in its source.
using Mentions = bool (*)(const void* context, std::string_view word);

// What transformers does to messages before it renders them: keys with null are left out, and
// reasoning goes by all of its names. Refuses (kUsage) what the template would lose without a word:
// keys of a message or a call that are neither known nor in the template, media and tool calls that
// the template has no place for.
Result<void> prepare_messages(ChatRequest& request, Mentions mentions, const void* context);

// Hides a mark behind the text that is to be continued; false: the last message has no such text.
// The mark's text is transformers' own, which templates may trim.
bool mark_continuation(ChatRequest& request, std::string& final_text);
// The text up to the mark, white space trimmed off where the template had trimmed the message.
// Nothing: the mark is not there.
std::optional<jinja::Text> cut_at_mark(const jinja::Text& text);

}  // namespace markbase::tokenizer
