#include "runtime/message_rules.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/chat_template.h"

namespace markbase::runtime {
namespace {

using tokenizer::jinja::Type;
using tokenizer::jinja::Value;

std::vector<std::string_view> roles_of(const ChatAbilities& can) {
  std::vector<std::string_view> roles = {"system"};
  if (can.developer) roles.push_back("developer");
  roles.insert(roles.end(), {"user", "assistant"});
  if (can.tools) roles.push_back("tool");
  return roles;
}

bool is_system(const MessageFacts& message) {
  return message.role == "system" || message.role == "developer";
}

// A key with null, an empty text or an empty list says nothing.
bool says_something(const tokenizer::jinja::Dict& message, std::string_view key) {
  const Value* value = message.find(key);
  if (value == nullptr || value->is(Type::kNone)) return false;
  if (value->is_string()) return !value->view().empty();
  return !value->is(Type::kList) || !value->list->items.empty();
}

bool is_text(const Value* value) {
  return value != nullptr && value->is_string() && !tokenizer::strip(value->view()).empty();
}

bool has_text(const Value* content) {
  if (content == nullptr || !content->is(Type::kList)) return is_text(content);
  return std::ranges::any_of(content->list->items, [](const Value& part) {
    return part.is(Type::kDict) && is_text(part.dict->find("text"));
  });
}

std::string shown(std::string_view text) { return base::dump_json(base::Json(text)); }

Error misplaced(size_t idx, std::string_view role, std::string_view what, std::string_view where) {
  return base::usage_error("messages: message {} of role '{}' has {}, which belongs to {}", idx,
                           role, what, where);
}

Result<void> check_parts(size_t idx, const MessageFacts& message, const ChatAbilities& can) {
  const std::string_view role = *message.role;
  const bool is_tool = role == "tool";
  if (role != "assistant") {
    constexpr std::string_view kWhere = "messages of the assistant";
    if (message.has_reasoning) return misplaced(idx, role, "reasoning", kWhere);
    if (message.has_calls) return misplaced(idx, role, "'tool_calls'", kWhere);
    if (message.has_responses) return misplaced(idx, role, "'tool_responses'", kWhere);
  }
  if (!is_tool && message.has_call_id)
    return misplaced(idx, role, "'tool_call_id'", "results of tools");
  if (!is_tool && message.has_name) return misplaced(idx, role, "'name'", "results of tools");
  if ((is_tool || message.has_calls || message.has_responses) && !can.tools) {
    return base::usage_error(
        "messages: message {} is a call of a tool or its result: this model's chat format has no "
        "tools",
        idx);
  }
  if (message.has_reasoning && !can.reasoning) {
    return base::usage_error(
        "messages: message {} has reasoning: this model's chat format has no place for it", idx);
  }
  return {};
}

Result<void> check_call_ids(size_t idx, const MessageFacts& message) {
  const std::vector<std::string_view>& ids = message.call_ids;
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    if (std::find(ids.begin(), id, *id) == id) continue;
    return base::usage_error("messages: message {} has two calls with the id {}", idx, shown(*id));
  }
  return {};
}

// `waiting`: the ids of the calls of `caller` that have no result yet. A result without an id is of
// any call.
Result<void> take_result(size_t idx, const MessageFacts& message, const MessageFacts* caller,
                         std::vector<std::string_view>* waiting) {
  if (caller == nullptr || !caller->has_calls || caller->has_responses) {
    return base::usage_error(
        "messages: message {} is the result of a tool, and the message before it calls none that "
        "waits for a result",
        idx);
  }
  if (message.call_id.empty()) return {};
  if (std::ranges::find(caller->call_ids, message.call_id) == caller->call_ids.end()) {
    return base::usage_error(
        "messages: message {} is the result of the call {}, and the message before it makes none "
        "with this id",
        idx, shown(message.call_id));
  }
  if (std::erase(*waiting, message.call_id) > 0) return {};
  return base::usage_error("messages: message {} is a second result of the call {}", idx,
                           shown(message.call_id));
}

// The ids of the calls of a value, those that are texts.
std::vector<std::string_view> ids_of(const Value* calls) {
  std::vector<std::string_view> ids;
  if (calls == nullptr || !calls->is(Type::kList)) return ids;
  for (const Value& call : calls->list->items) {
    const Value* id = call.is(Type::kDict) ? call.dict->find("id") : nullptr;
    if (id != nullptr && id->is_string() && !id->view().empty()) ids.push_back(id->view());
  }
  return ids;
}

}  // namespace

ChatAbilities chat_abilities(const tokenizer::Tokenizer& tokenizer) {
  const std::string_view source = tokenizer.chat_template();
  if (source.empty()) {
    const bool gemma4 = tokenizer::has_gemma4_format(tokenizer);
    return {.thinking = gemma4, .tools = gemma4, .reasoning = gemma4, .developer = gemma4};
  }
  // What a template never speaks of it cannot render.
  const auto speaks_of = [&](std::string_view word) { return source.find(word) != source.npos; };
  return {.thinking = speaks_of("enable_thinking"),
          .tools = speaks_of("tools"),
          .reasoning = speaks_of("reasoning") || speaks_of("'thinking'") ||
                       speaks_of(".thinking") || speaks_of("\"thinking\""),
          .developer = speaks_of("developer")};
}

std::vector<MessageFacts> facts_of(std::span<const Message> messages) {
  std::vector<MessageFacts> facts;
  for (const Message& message : messages) {
    facts.push_back({.role = message.role,
                     .has_text = !tokenizer::strip(message.content).empty(),
                     .has_reasoning = !message.reasoning.empty(),
                     .has_calls = !message.tool_calls.empty(),
                     .has_call_id = !message.tool_call_id.empty(),
                     .call_id = message.tool_call_id});
    for (const ToolCall& call : message.tool_calls) {
      if (!call.id.empty()) facts.back().call_ids.push_back(call.id);
    }
  }
  return facts;
}

std::vector<MessageFacts> facts_of(const tokenizer::ChatRequest& request) {
  std::vector<MessageFacts> facts;
  for (const Value& value : request.messages.list->items) {
    MessageFacts& message = facts.emplace_back();
    const Value* role = value.is(Type::kDict) ? value.dict->find("role") : nullptr;
    if (role == nullptr || !role->is_string()) continue;
    const tokenizer::jinja::Dict& dict = *value.dict;
    message.role = role->view();
    message.has_text = has_text(dict.find("content"));
    message.has_reasoning = says_something(dict, "reasoning_content") ||
                            says_something(dict, "reasoning") || says_something(dict, "thinking");
    message.has_calls = says_something(dict, "tool_calls");
    message.has_responses = says_something(dict, "tool_responses");
    message.has_call_id = says_something(dict, "tool_call_id");
    message.call_ids = ids_of(dict.find("tool_calls"));
    const Value* call_id = dict.find("tool_call_id");
    if (call_id != nullptr && call_id->is_string()) message.call_id = call_id->view();
    message.has_name = says_something(dict, "name");
  }
  return facts;
}

Result<void> check_messages(std::span<const MessageFacts> messages, const ChatAbilities& can) {
  const std::vector<std::string_view> roles = roles_of(can);
  const MessageFacts* before = nullptr;   // the last that is no result
  std::vector<std::string_view> waiting;  // ids of its calls without a result
  for (size_t i = 0; i < messages.size(); ++i) {
    const MessageFacts& message = messages[i];
    if (!message.role) continue;
    const bool is_tool = message.role == "tool";
    if (!is_tool && std::ranges::find(roles, *message.role) == roles.end()) {
      return base::usage_error("messages: message {} has the role {}, expected one of {}", i,
                               shown(*message.role), fmt::join(roles, ", "));
    }
    MB_TRY(check_parts(i, message, can));
    MB_TRY(check_call_ids(i, message));
    if (is_tool) {
      MB_TRY(take_result(i, message, before, &waiting));
      continue;
    }
    before = &message;
    waiting = message.call_ids;
  }
  return {};
}

bool is_system_alone(std::span<const MessageFacts> messages) {
  const auto has_text = [](const MessageFacts& message) { return message.has_text; };
  return std::ranges::all_of(messages, is_system) && std::ranges::any_of(messages, has_text);
}

Result<void> check_holds_text(std::span<const tokenizer::ChatSegment> segments) {
  const auto holds_text = [](const tokenizer::ChatSegment& segment) {
    return segment.origin == tokenizer::SegmentOrigin::kMessage &&
           !tokenizer::strip(segment.text).empty();
  };
  if (std::ranges::any_of(segments, holds_text)) return {};
  return base::usage_error(
      "messages: a system message alone: this model's chat format puts its text before the first "
      "message of the user, expected one");
}

}  // namespace markbase::runtime
