#include "cli/batch_request.h"

#include <random>

#include "base/error.h"
#include "cli/batch_output.h"
#include "cli/chat_messages.h"
#include "cli/json_fields.h"
#include "cli/json_lines.h"
#include "cli/json_slice.h"

namespace markbase::cli {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::string_view kKeys[] = {"id",
                                      "prompt",
                                      "messages",
                                      "ids",
                                      "raw",
                                      "special",
                                      "system",
                                      "tools",
                                      "enable_thinking",
                                      "n",
                                      "max_tokens",
                                      "temperature",
                                      "top_k",
                                      "top_p",
                                      "min_p",
                                      "seed",
                                      "repetition_penalty",
                                      "stop",
                                      "ignore_eos",
                                      "logprobs",
                                      "top_logprobs",
                                      "priority"};

// A key that a line has but cannot use, by what it goes with.
Result<void> refuse(const JsonFields& fields, std::string_view key, std::string_view goes_with) {
  if (!fields.has(key)) return {};
  return base::usage_error("\"{}\": goes with {}", key, goes_with);
}

Result<SamplingFlags> sampling_of(const JsonFields& fields, const SamplingFlags& defaults) {
  SamplingFlags flags = defaults;
  const auto take = [](auto& flag, const auto& given) {
    if (given) flag = *given;
  };
  MB_ASSIGN(const auto max_tokens, fields.integer("max_tokens", 0, INT64_MAX));
  take(flags.max_tokens, max_tokens);
  MB_ASSIGN(const auto temperature, fields.number("temperature"));
  take(flags.temperature, temperature);
  MB_ASSIGN(const auto top_k, fields.integer("top_k", 0, kMaxInt));
  if (top_k) flags.top_k = static_cast<int>(*top_k);
  MB_ASSIGN(const auto top_p, fields.number("top_p"));
  take(flags.top_p, top_p);
  MB_ASSIGN(const auto min_p, fields.number("min_p"));
  take(flags.min_p, min_p);
  MB_ASSIGN(const auto penalty, fields.number("repetition_penalty"));
  take(flags.repetition_penalty, penalty);
  MB_ASSIGN(const auto seed, fields.natural("seed"));
  take(flags.seed, seed);
  MB_ASSIGN(const auto stop, fields.texts("stop"));
  take(flags.stop, stop);
  MB_ASSIGN(const auto ignore_eos, fields.boolean("ignore_eos"));
  take(flags.ignore_eos, ignore_eos);
  MB_TRY(check_sampling(flags, NamedAs::kKey));
  return flags;
}

Result<void> take_answers(const JsonFields& fields, Request& request) {
  MB_ASSIGN(const auto n, fields.integer("n", 1, kMostAnswers));
  request.num_answers = static_cast<int>(n.value_or(1));
  MB_ASSIGN(const auto logprobs, fields.boolean("logprobs"));
  MB_ASSIGN(const auto top, fields.integer("top_logprobs", 0, kMostTopLogprobs));
  if (top && !logprobs.value_or(true)) {
    return base::usage_error("\"top_logprobs\": goes with \"logprobs\": true");
  }
  if (top || logprobs.value_or(false)) request.top_logprobs = static_cast<int>(top.value_or(0));
  MB_ASSIGN(const auto priority, fields.integer("priority", -kMaxInt - 1, kMaxInt));
  request.priority = static_cast<int>(priority.value_or(0));
  return {};
}

// "system", "enable_thinking" and "tools" of a line that goes through the chat template.
Result<void> take_chat(std::string_view text, const JsonFields& fields,
                       const BatchDefaults& defaults, Request& request) {
  MB_ASSIGN(const auto system, fields.text("system"));
  const bool has_system = !request.messages.empty() && request.messages.front().role == "system";
  if (system && has_system) {
    return base::usage_error("\"system\": the messages begin with a system message already");
  }
  const std::string& content = system ? *system : defaults.system;
  if (!content.empty() && !has_system) {
    request.messages.insert(request.messages.begin(), {"system", content});
  }
  MB_ASSIGN(const auto think, fields.boolean("enable_thinking"));
  request.enable_thinking = think.value_or(defaults.think);
  MB_ASSIGN(const base::Json* tools, fields.list("tools"));
  if (tools == nullptr) {
    request.tools = defaults.tools;
  } else if (!tools->empty()) {
    const std::string_view written = json_member(text, "tools");
    request.tools = written.empty() ? base::dump_json(*tools) : std::string(written);
  }
  return {};
}

Result<void> refuse_chat(const JsonFields& fields, std::string_view why) {
  for (const std::string_view key : {"system", "tools"}) MB_TRY(refuse(fields, key, why));
  MB_ASSIGN(const auto think, fields.boolean("enable_thinking"));
  if (think.value_or(false)) return refuse(fields, "enable_thinking", why);
  return {};
}

// As `run -p` takes a text.
Result<void> take_prompt(std::string_view text, const JsonFields& fields,
                         const BatchDefaults& defaults, const ModelInfo& model, Request& request) {
  MB_ASSIGN(std::optional<std::string> prompt, fields.text("prompt"));
  MB_ASSIGN(const auto raw, fields.boolean("raw"));
  MB_ASSIGN(const auto special, fields.boolean("special"));
  if (raw.value_or(defaults.raw) || !model.has_chat_template) {
    MB_TRY(refuse_chat(fields, model.has_chat_template
                                   ? "a chat, not with \"raw\""
                                   : "a chat template, and this model has none"));
    request.text = std::move(*prompt);
    request.text_is_set = true;
    request.parse_special = special.value_or(defaults.special);
    return {};
  }
  if (special.value_or(false)) {
    return base::usage_error("\"special\": goes with \"raw\"; in a chat, text is plain text");
  }
  request.messages.push_back({"user", std::move(*prompt)});
  return take_chat(text, fields, defaults, request);
}

Result<void> take_messages(std::string_view text, const JsonFields& fields,
                           const BatchDefaults& defaults, Request& request) {
  for (const std::string_view key : {"raw", "special"}) {
    MB_ASSIGN(const auto given, fields.boolean(key));
    if (given.value_or(false)) return refuse(fields, key, "\"prompt\"");
  }
  MB_ASSIGN(const base::Json* list, fields.list("messages"));
  MB_ASSIGN(request.messages, parse_messages(*list, json_member(text, "messages")));
  return take_chat(text, fields, defaults, request);
}

Result<void> take_ids(const JsonFields& fields, const ModelInfo& model, Request& request) {
  MB_TRY(refuse_chat(fields, "a chat: ids are taken as they are"));
  for (const std::string_view key : {"raw", "special"}) {
    MB_ASSIGN(const auto given, fields.boolean(key));
    if (given.value_or(false)) return refuse(fields, key, "\"prompt\"");
  }
  MB_ASSIGN(request.ids, fields.ids("ids", model.vocab_size));
  if (request.ids.empty()) return base::usage_error("\"ids\": expected at least one, got none");
  return {};
}

// What the answer depends on, as one text.
std::string essence(const Request& request, std::optional<uint64_t> seed, std::string_view setup) {
  const SamplingOptions& s = request.sampling;
  base::Json messages = base::Json::array();
  for (const Message& message : request.messages) {
    base::Json calls = base::Json::array();
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back({call.name, call.arguments, call.id});
    }
    messages.push_back(
        {message.role, message.content, message.reasoning, message.tool_call_id, calls});
  }
  const base::Json json = {
      {"setup", setup},
      {"ids", request.ids},
      {"text", request.text},
      {"text_is_set", request.text_is_set},
      {"special", request.parse_special},
      {"messages", messages},
      {"tools", request.tools},
      {"think", request.enable_thinking},
      {"max_tokens", request.max_tokens},
      {"sampling", {s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty}},
      {"seed", seed ? base::Json(*seed) : base::Json()},
      {"stop", request.stop},
      {"ignore_eos", request.ignore_eos},
      {"n", request.num_answers},
      {"logprobs", request.top_logprobs},
  };
  return base::dump_json(json);
}

}  // namespace

Result<void> check_defaults(const BatchDefaults& defaults, const ModelInfo& model) {
  MB_TRY(check_sampling(defaults.sampling));
  if (defaults.special && !defaults.raw && model.has_chat_template) {
    return base::usage_error("--special: goes with --raw; in a chat, text is plain text");
  }
  if (!defaults.system.empty() && !model.has_chat_format) {
    return base::usage_error("--system: this model has no chat format");
  }
  if (defaults.think && !model.has_thinking) {
    return base::usage_error("--think: this model has no thinking mode");
  }
  if (!defaults.tools.empty() && !model.has_tools) {
    return base::usage_error("--tools: this model's chat format has none");
  }
  return {};
}

Result<base::Json> batch_id(const base::Json& line, size_t number) {
  const base::Json* id = JsonFields(line).find("id");
  if (id == nullptr) return base::Json(number);
  if (id->is_string() || id->is_number_integer()) return *id;
  return base::usage_error("\"id\": expected a text or an integer, got {}", base::dump_json(*id));
}

Result<BatchRequest> batch_request(std::string_view text, const base::Json& line,
                                   const BatchDefaults& defaults, const ModelInfo& model,
                                   std::string_view setup) {
  MB_TRY(check_keys(line, kKeys));
  const JsonFields fields(line);
  const int sources = static_cast<int>(fields.has("prompt")) +
                      static_cast<int>(fields.has("messages")) +
                      static_cast<int>(fields.has("ids"));
  if (sources != 1) {
    return base::usage_error("expected one of \"prompt\", \"messages\" and \"ids\", got {}",
                             sources == 0 ? "none" : "several");
  }
  BatchRequest batch;
  Request& request = batch.request;
  MB_ASSIGN(const SamplingFlags flags, sampling_of(fields, defaults.sampling));
  apply_sampling(flags, model.sampling_defaults, request);
  MB_TRY(take_answers(fields, request));
  if (fields.has("prompt")) {
    MB_TRY(take_prompt(text, fields, defaults, model, request));
  } else if (fields.has("messages")) {
    MB_TRY(take_messages(text, fields, defaults, request));
  } else {
    MB_TRY(take_ids(fields, model, request));
  }
  if (request.enable_thinking && !model.has_thinking) {
    return base::usage_error("\"enable_thinking\": this model has no thinking mode");
  }
  if (!request.tools.empty()) {
    if (!model.has_tools) {
      return base::usage_error("\"tools\": this model's chat format has none");
    }
    Result<ToolDeclarations> tools = ToolDeclarations::from_json(request.tools);
    if (!tools.ok()) return base::usage_error("\"tools\": {}", tools.error().message);
    batch.tools = std::move(*tools);
  }
  batch.hash = hash_of(essence(request, flags.seed, setup));
  return batch;
}

}  // namespace markbase::cli
