#include "tokenizer/chat_request.h"

#include <algorithm>

#include "base/error.h"
#include "base/repeated_key.h"
#include "tokenizer/jinja/json_value.h"
#include "tokenizer/jinja/python.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer {
namespace {

using jinja::Dict;
using jinja::Origin;
using jinja::Text;
using jinja::Type;
using jinja::Value;

// Older names of reasoning; the first is the one that templates read.
constexpr std::string_view kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};
constexpr std::string_view kRequestKeys[] = {"messages",
                                             "tools",
                                             "add_generation_prompt",
                                             "continue_final_message",
                                             "enable_thinking",
                                             "preserve_thinking"};
constexpr std::string_view kMessageKeys[] = {
    "role",           "content",           "name",     "tool_calls", "tool_call_id",
    "tool_responses", "reasoning_content", "thinking", "reasoning",
};
constexpr std::string_view kCallKeys[] = {"id", "type", "function"};
constexpr std::string_view kFunctionKeys[] = {"name", "arguments"};
constexpr std::string_view kMediaTypes[] = {"image", "image_url", "audio", "input_audio", "video"};
// As transformers marks the place; the space at its end tells whether the template trimmed it.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

template <class List>
bool is_one_of(std::string_view word, const List& list) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Gathers what every check of one message needs.
struct Checker {
  ChatRequest& request;
  Mentions mentions;
  const void* context;
  size_t index = 0;

  bool in_template(std::string_view word) const { return mentions(context, word); }

  Result<void> check_part(const Value& part) const {
    const Value* type = part.is(Type::kDict) ? part.dict->find("type") : nullptr;
    if (type == nullptr || !type->is_string()) {
      return base::usage_error("messages: message {} has a part that is no object with a 'type'",
                               index);
    }
    if (type->view() == "text") {
      const Value* text = part.dict->find("text");
      if (text != nullptr && text->is_string()) return {};
      return base::usage_error("messages: message {} has a text part without a 'text'", index);
    }
    if (!is_one_of(type->view(), kMediaTypes)) {
      return base::usage_error(
          "messages: message {} has a part of type '{}', expected text, image, image_url, audio, "
          "input_audio or video",
          index, type->view());
    }
    if (!in_template(fmt::format("'{}'", type->view())) &&
        !in_template(fmt::format("\"{}\"", type->view()))) {
      return base::usage_error(
          "messages: message {} has a part of type '{}', for which this model's chat template has "
          "no place",
          index, type->view());
    }
    ++request.num_media;
    return {};
  }

  Result<void> check_content(const Dict& message) const {
    const Value* content = message.find("content");
    if (content == nullptr || content->is_string()) return {};
    if (!content->is(Type::kList)) {
      return base::usage_error(
          "messages: message {} has a content of type {}, expected a text or a list", index,
          jinja::type_name(*content));
    }
    for (const Value& part : content->list->items) MB_TRY(check_part(part));
    return {};
  }

  Result<void> check_calls(const Dict& message) const {
    for (const std::string_view key : {"tool_calls", "tool_responses"}) {
      const Value* list = message.find(key);
      if (list == nullptr) continue;
      if (!list->is(Type::kList)) {
        return base::usage_error("messages: message {}: '{}' is of type {}, expected a list", index,
                                 key, jinja::type_name(*list));
      }
      for (const Value& item : list->list->items) {
        if (!item.is(Type::kDict)) {
          return base::usage_error("messages: message {}: '{}' holds a {}, expected objects", index,
                                   key, jinja::type_name(item));
        }
      }
      if (!list->list->items.empty() && !in_template(key)) {
        return base::usage_error(
            "messages: message {} has '{}', which this model's chat template does not know", index,
            key);
      }
    }
    return check_call_keys(message);
  }

  template <class Keys>
  Result<void> check_keys(const Dict& dict, const Keys& known, std::string_view of) const {
    for (const auto& [key, value] : dict.items) {
      if (is_one_of(key.view(), known) || in_template(key.view())) continue;
      return base::usage_error(
          "messages: message {}{} has the key '{}', which neither the chat format nor this model's "
          "template knows",
          index, of, key.view());
    }
    return {};
  }

  Result<void> check_call_keys(const Dict& message) const {
    const Value* calls = message.find("tool_calls");
    if (calls == nullptr) return {};
    for (const Value& call : calls->list->items) {
      MB_TRY(check_keys(*call.dict, kCallKeys, ": a call"));
      const Value* function = call.dict->find("function");
      if (function == nullptr || !function->is(Type::kDict)) continue;
      MB_TRY(check_keys(*function->dict, kFunctionKeys, ": the function of a call"));
    }
    return {};
  }

  Result<void> check(const Dict& message) const {
    const Value* role = message.find("role");
    if (role == nullptr || !role->is_string())
      return base::usage_error("messages: message {} has no 'role' that is a text", index);
    MB_TRY(check_keys(message, kMessageKeys, ""));
    MB_TRY(check_content(message));
    return check_calls(message);
  }
};

// The message without its nulls, reasoning under all of its names.
Value normalized(const Dict& message, jinja::Arena& arena) {
  const Value out = arena.dict();
  const Value* reasoning = nullptr;
  for (const std::string_view name : kReasoningNames) {
    const Value* value = message.find(name);
    if (reasoning == nullptr && value != nullptr && !value->is(Type::kNone)) reasoning = value;
  }
  if (reasoning != nullptr) out.dict->set(arena.string("thinking", Origin::kMessage), *reasoning);
  for (const auto& [key, value] : message.items) {
    if (!value.is(Type::kNone)) out.dict->set(key, value);
  }
  if (reasoning != nullptr)
    out.dict->set(arena.string("reasoning_content", Origin::kMessage), *reasoning);
  return out;
}

Result<void> read_key(ChatRequest& request, std::string_view key, const Value& value) {
  const auto wrong = [&](std::string_view expected) {
    return base::usage_error("\"{}\": got a {}, expected {}", key, jinja::type_name(value),
                             expected);
  };
  if (key == "messages") {
    if (!value.is(Type::kList)) return wrong("a list");
    request.messages = value;
  } else if (key == "continue_final_message") {
    if (value.is_string()) {
      request.continue_field = value.view();
    } else if (value.is(Type::kBool)) {
      request.continue_field = value.boolean ? "content" : "";
    } else {
      return wrong("true, false or the name of a field");
    }
  } else {
    const bool is_flag =
        key == "add_generation_prompt" || key == "enable_thinking" || key == "preserve_thinking";
    if (is_flag && !value.is(Type::kBool)) return wrong("true or false");
    if ((key == "tools" || key == "documents") && !value.is(Type::kList)) return wrong("a list");
    request.variables.emplace_back(key, value);
  }
  return {};
}

bool is_flag_set(const ChatRequest& request, std::string_view name) {
  return std::any_of(request.variables.begin(), request.variables.end(),
                     [name](const auto& v) { return v.first == name && jinja::is_true(v.second); });
}

// A copy of a dict with one value replaced.
Value with_value(const Dict& dict, std::string_view key, const Value& value, jinja::Arena& arena) {
  const Value copy = arena.dict();
  for (const auto& [name, old] : dict.items) copy.dict->set(name, name.view() == key ? value : old);
  return copy;
}

Value marked(const Value& text, jinja::Arena& arena) {
  Text out = *text.text;
  append(out, kMark, Origin::kMark);
  return arena.string(std::move(out));
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view json) {
  ChatRequest request;
  request.arena = std::make_unique<jinja::Arena>();
  MB_ASSIGN(const Value root, jinja::value_from_json(json, "request", *request.arena));
  MB_TRY(base::check_no_repeated_key(json));
  if (!root.is(Type::kDict)) {
    return base::usage_error("expected a JSON object with {}, got a {}",
                             fmt::join(kRequestKeys, ", "), jinja::type_name(root));
  }
  for (const auto& [key, value] : root.dict->items) {
    if (!value.is(Type::kNone)) MB_TRY(read_key(request, key.view(), value));
  }
  if (!request.messages.is(Type::kList) || request.messages.list->items.empty())
    return base::usage_error("\"messages\": expected a list of at least one message");
  if (!request.continue_field.empty() && is_flag_set(request, "add_generation_prompt")) {
    return base::usage_error(
        "\"continue_final_message\" goes on with the last message and \"add_generation_prompt\" "
        "begins a new one: give one of them");
  }
  return request;
}

ChatRequest chat_request_of(std::span<const ChatMessage> messages, bool add_generation_prompt) {
  ChatRequest request;
  request.arena = std::make_unique<jinja::Arena>();
  jinja::Arena& arena = *request.arena;
  const Value role_key = arena.string("role", Origin::kMessage);
  const Value content_key = arena.string("content", Origin::kMessage);
  std::vector<Value> items;
  for (const ChatMessage& message : messages) {
    const Value dict = arena.dict();
    dict.dict->set(role_key, arena.string(message.role, Origin::kMessage));
    dict.dict->set(content_key, arena.string(message.content, Origin::kMessage));
    items.push_back(dict);
  }
  request.messages = arena.list(std::move(items));
  request.variables.emplace_back("add_generation_prompt", Value::of(add_generation_prompt));
  return request;
}

Result<void> prepare_messages(ChatRequest& request, Mentions mentions, const void* context) {
  request.num_media = 0;
  std::vector<Value> messages;
  Checker checker{request, mentions, context};
  for (const Value& message : request.messages.list->items) {
    if (!message.is(Type::kDict)) {
      return base::usage_error("messages: message {} is a {}, expected an object", checker.index,
                               jinja::type_name(message));
    }
    messages.push_back(normalized(*message.dict, *request.arena));
    MB_TRY(checker.check(*messages.back().dict));
    ++checker.index;
  }
  request.messages = request.arena->list(std::move(messages));
  return {};
}

bool mark_continuation(ChatRequest& request, std::string& final_text) {
  jinja::Arena& arena = *request.arena;
  std::vector<Value> messages = request.messages.list->items;
  const Dict& last = *messages.back().dict;
  const Value* found = last.find(request.continue_field);
  if (found == nullptr) return false;
  const Value field = *found;
  if (field.is_string()) {
    final_text = field.view();
    const Value text = marked(field, arena);
    Value changed = with_value(last, request.continue_field, text, arena);
    // Reasoning is there under all of its names, and the template reads any of them.
    for (const std::string_view name : kReasoningNames) {
      const Value* copy = last.find(name);
      if (is_one_of(request.continue_field, kReasoningNames) && copy != nullptr &&
          copy->is_string() && copy->view() == field.view()) {
        changed = with_value(*changed.dict, name, text, arena);
      }
    }
    messages.back() = changed;
  } else if (field.is(Type::kList)) {
    std::vector<Value> parts = field.list->items;
    const auto part = std::find_if(parts.rbegin(), parts.rend(), [](const Value& p) {
      const Value* text = p.is(Type::kDict) ? p.dict->find("text") : nullptr;
      return text != nullptr && text->is_string();
    });
    if (part == parts.rend()) return false;
    const Value text = *part->dict->find("text");
    final_text = text.view();
    *part = with_value(*part->dict, "text", marked(text, arena), arena);
    messages.back() = with_value(last, request.continue_field, arena.list(std::move(parts)), arena);
  } else {
    return false;
  }
  request.messages = arena.list(std::move(messages));
  return true;
}

std::optional<jinja::Text> cut_at_mark(const jinja::Text& text) {
  constexpr std::string_view kTrimmed = kMark.substr(0, kMark.size() - 1);
  size_t run_begin = 0;
  size_t cut = text.bytes.npos;
  bool is_whole = false;
  for (const jinja::Run& run : text.runs) {
    if (run.origin == Origin::kMark) {
      const std::string_view part =
          std::string_view(text.bytes).substr(run_begin, run.end - run_begin);
      const size_t found = part.rfind(kTrimmed);
      if (found != part.npos) {
        cut = run_begin + found;
        is_whole = part.substr(found).starts_with(kMark);
      }
    }
    run_begin = run.end;
  }
  if (cut == text.bytes.npos) return std::nullopt;
  Text out;
  size_t begin = 0;
  for (const jinja::Run& run : text.runs) {
    if (run.origin != Origin::kMark) append(out, text, begin, std::min(run.end, cut));
    begin = run.end;
  }
  return is_whole ? out : strip(out, {}, jinja::Ends::kRight);
}

}  // namespace markbase::tokenizer
