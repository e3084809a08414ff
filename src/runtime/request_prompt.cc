#include "runtime/request_prompt.h"

#include "base/error.h"
#include "base/json.h"

namespace markbase::runtime {
namespace {

std::string quoted(const std::string& text) { return base::dump_json(base::Json(text)); }

// JSON text of somebody else goes into ours as it is, so that numbers keep their spelling; so it
// must be what it says.
Result<void> check_json(const std::string& text, base::Json::value_t type, std::string_view what) {
  const Result<base::Json> json = base::parse_json(text, what);
  if (!json.ok()) return Error{ErrorCode::kUsage, json.error().message};
  if (json->type() == type) return {};
  return base::usage_error("{}: expected {}, got {}", what, base::Json(type).type_name(),
                           json->type_name());
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

Result<std::string> message_json(const Message& message) {
  std::string out =
      fmt::format(R"({{"role":{},"content":{})", quoted(message.role), quoted(message.content));
  if (!message.reasoning.empty()) {
    out += R"(,"reasoning_content":)" + quoted(message.reasoning);
  }
  if (!message.tool_calls.empty()) {
    MB_ASSIGN(const std::string calls, calls_json(message));
    out += R"(,"tool_calls":)" + calls;
  }
  if (!message.tool_call_id.empty()) out += R"(,"tool_call_id":)" + quoted(message.tool_call_id);
  return out + "}";
}

}  // namespace

Result<std::string> request_json(const Request& request) {
  std::string out = R"({"messages":[)";
  for (size_t i = 0; i < request.messages.size(); ++i) {
    MB_ASSIGN(const std::string message, message_json(request.messages[i]));
    out += (i > 0 ? "," : "") + message;
  }
  out += R"(],"add_generation_prompt":true)";
  if (request.enable_thinking) out += R"(,"enable_thinking":true)";
  if (!request.tools.empty()) {
    MB_TRY(check_json(request.tools, base::Json::value_t::array, "tools"));
    out += R"(,"tools":)" + request.tools;
  }
  return out + "}";
}

ChatAbilities chat_abilities(const tokenizer::Tokenizer& /*tokenizer*/) { return {}; }

Result<ChatPrompt> request_prompt(const tokenizer::Tokenizer& tokenizer, const Request& request) {
  const ChatAbilities can = chat_abilities(tokenizer);
  if (request.enable_thinking && !can.thinking) {
    return base::usage_error("thinking: this model's chat format has none");
  }
  if (!request.tools.empty() && !can.tools) {
    return base::usage_error("tools: this model's chat format has none");
  }
  for (const Message& message : request.messages) {
    if (can.tools || (message.role != "tool" && message.tool_calls.empty())) continue;
    return base::usage_error(
        "messages: a call of a tool or its result: this model's chat format has no tools");
  }
  return chat_prompt(tokenizer, request.messages, true);
}

}  // namespace markbase::runtime
