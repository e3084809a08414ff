#include "runtime/request_prompt.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/repeated_key.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/utf8.h"

namespace markbase::runtime {
namespace {

std::string quoted(const std::string& text) { return base::dump_json(base::Json(text)); }

// JSON text of somebody else goes into ours as it is, so that numbers keep their spelling; so it
// must be what it says.
Result<void> check_json(const std::string& text, base::Json::value_t type, std::string_view what) {
  const Result<base::Json> json = base::parse_json(text, what);
  if (!json.ok()) return Error{ErrorCode::kUsage, json.error().message};
  if (json->type() == type) return base::check_no_repeated_key(text, what);
  return base::usage_error("{}: expected {}, got {}", what, base::Json(type).type_name(),
                           json->type_name());
}

// JSON holds nothing else; what is no UTF-8 would become another character in silence.
Result<void> check_utf8(std::span<const Message> messages) {
  const auto is_utf8 = [](const ToolCall& call) {
    return tokenizer::is_valid_utf8(call.name) && tokenizer::is_valid_utf8(call.id);
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    const bool valid =
        tokenizer::is_valid_utf8(m.content) && tokenizer::is_valid_utf8(m.reasoning) &&
        tokenizer::is_valid_utf8(m.tool_call_id) && std::ranges::all_of(m.tool_calls, is_utf8);
    if (valid) continue;
    return base::usage_error(
        "messages: message {} holds bytes that are no UTF-8, which a chat with tools or thoughts "
        "cannot take",
        i);
  }
  return {};
}

Result<std::string> calls_json(const Message& message) {
  std::string out = "[";
  for (const ToolCall& call : message.tool_calls) {
    MB_TRY(check_json(call.arguments, base::Json::value_t::object,
                      fmt::format("arguments of '{}'", call.name)));
    if (out.size() > 1) out += ',';
    out += fmt::format(R"({{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})",
                       quoted(call.id), quoted(call.name), call.arguments);
  }
  return out + "]";
}

// [{"name", "response"}] for the results that follow a message with calls.
std::string responses_json(const Message& caller, std::span<const Message> following) {
  std::string out = "[";
  for (const Message& message : following) {
    if (message.role != "tool") break;
    const auto call = std::ranges::find(caller.tool_calls, message.tool_call_id, &ToolCall::id);
    const std::string name = call == caller.tool_calls.end() ? "unknown" : call->name;
    if (out.size() > 1) out += ',';
    out += fmt::format(R"({{"name":{},"response":{}}})", quoted(name), quoted(message.content));
  }
  return out + "]";
}

Result<std::string> message_json(const Message& message, std::string_view responses) {
  std::string out =
      fmt::format(R"({{"role":{},"content":{})", quoted(message.role), quoted(message.content));
  if (!message.reasoning.empty()) {
    out += R"(,"reasoning_content":)" + quoted(message.reasoning);
  }
  if (!message.tool_calls.empty()) {
    MB_ASSIGN(const std::string calls, calls_json(message));
    out += R"(,"tool_calls":)" + calls;
  }
  if (!responses.empty()) out += fmt::format(R"(,"tool_responses":{})", responses);
  if (!message.tool_call_id.empty()) out += R"(,"tool_call_id":)" + quoted(message.tool_call_id);
  return out + "}";
}

// Templates know tools by their OpenAI form alone; functions without the wrapping get it.
Result<std::string> tools_json(const std::string& text) {
  MB_TRY(check_json(text, base::Json::value_t::array, "tools"));
  MB_ASSIGN(base::Json tools, base::parse_json(text, "tools"));
  bool wrapped = true;
  for (base::Json& tool : tools) {
    if (!tool.is_object() || tool.contains("function")) continue;
    tool = base::Json{{"type", "function"}, {"function", tool}};
    wrapped = false;
  }
  return wrapped ? text : base::dump_json(tools);
}

// Gemma 4's template closes a turn that holds calls, results and a text, and then opens none for
// the model, since it takes the results for the end.
void open_turn(const tokenizer::Tokenizer& tokenizer, ChatPrompt* prompt) {
  constexpr std::string_view kOpening = "<|turn>model\n";
  const auto end = tokenizer.find("<turn|>");
  const size_t n = prompt->ids.size();
  if (!end || !prompt->text.ends_with("<turn|>\n") || n < 2 || prompt->ids[n - 2] != *end) return;
  prompt->text += kOpening;
  const auto ids = tokenizer.encode(kOpening, {.parse_special = true});
  prompt->ids.insert(prompt->ids.end(), ids.begin(), ids.end());
}

// Templates of Gemma 4's first months know no messages of tools.
ResultForm result_form(const tokenizer::Tokenizer& tokenizer) {
  const std::string_view source = tokenizer.chat_template();
  const bool old =
      source.find("tool_responses") != source.npos && source.find("tool_call_id") == source.npos;
  return old ? ResultForm::kWithCaller : ResultForm::kMessages;
}

}  // namespace

Result<std::string> request_json(const Request& request, ResultForm form,
                                 bool add_generation_prompt) {
  const std::span<const Message> messages = request.messages;
  std::string list;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool with_caller = form == ResultForm::kWithCaller;
    if (with_caller && messages[i].role == "tool") continue;
    std::string responses;
    if (with_caller && !messages[i].tool_calls.empty()) {
      responses = responses_json(messages[i], messages.subspan(i + 1));
    }
    MB_ASSIGN(const std::string message, message_json(messages[i], responses));
    list += (list.empty() ? "" : ",") + message;
  }
  std::string out =
      fmt::format(R"({{"messages":[{}],"add_generation_prompt":{})", list, add_generation_prompt);
  if (request.enable_thinking) out += R"(,"enable_thinking":true)";
  if (!request.tools.empty()) {
    MB_ASSIGN(const std::string tools, tools_json(request.tools));
    out += R"(,"tools":)" + tools;
  }
  return out + "}";
}

Result<ChatPrompt> request_prompt(const tokenizer::Tokenizer& tokenizer, const Request& request,
                                  bool add_generation_prompt) {
  const ChatAbilities can = chat_abilities(tokenizer);
  if (request.enable_thinking && !can.thinking) {
    return base::usage_error("thinking: this model's chat format has none");
  }
  if (!request.tools.empty() && !can.tools) {
    return base::usage_error("tools: this model's chat format has none");
  }
  // Before results are moved to their calls, which those that belong to none would not survive.
  const std::vector<MessageFacts> facts = facts_of(request.messages);
  MB_TRY(check_messages(facts, can));
  const bool plain = !request.enable_thinking && request.tools.empty() &&
                     std::ranges::none_of(facts, [](const MessageFacts& message) {
                       return message.role == "tool" || message.has_calls || message.has_reasoning;
                     });
  // Plain text keeps bytes that are no UTF-8, which JSON cannot hold.
  if (plain) return chat_prompt(tokenizer, request.messages, add_generation_prompt);
  MB_TRY(check_utf8(request.messages));
  MB_ASSIGN(const std::string json,
            request_json(request, result_form(tokenizer), add_generation_prompt));
  MB_ASSIGN(ChatPrompt prompt, chat_prompt(tokenizer, json, /*allow_media=*/false));
  if (add_generation_prompt) open_turn(tokenizer, &prompt);
  return prompt;
}

}  // namespace markbase::runtime
