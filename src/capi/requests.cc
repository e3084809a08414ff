#include "capi/requests.h"

#include "base/error.h"
#include "capi/door.h"
#include "capi/handles.h"
#include "capi/structs.h"

namespace markbase::capi {
namespace {

// `take` for each of an array of structs, which are as far apart as the first one is large.
template <class T, class Take>
Result<void> for_each(const T* items, size_t num_items, std::string_view name, const Take& take) {
  if (num_items > 0) MB_TRY(need(items, name));
  for (size_t i = 0; i < num_items; ++i) {
    const std::string where = fmt::format("{}[{}]", name, i);
    if (i == 0) MB_TRY(check_size<T>(items->size, where));
    const T* item = element(items, i);
    if (item->size != items->size) {
      return base::usage_error("{}: size: expected {} as in the first, got {}", where, items->size,
                               item->size);
    }
    MB_ASSIGN(const T read, read_struct(item, T{}, where));
    MB_TRY(take(read, where));
  }
  return {};
}

Result<ToolCall> call_of(const mb_tool_call& from, std::string_view name) {
  ToolCall call;
  MB_ASSIGN(call.name, text_of(from.name, fmt::format("{}.name", name)));
  MB_ASSIGN(call.arguments, text_of(from.arguments, fmt::format("{}.arguments", name)));
  MB_ASSIGN(call.id, text_of(from.id, fmt::format("{}.id", name)));
  return call;
}

Result<Message> message_of(const mb_message& from, std::string_view name) {
  Message message;
  MB_ASSIGN(message.role, text_of(from.role, fmt::format("{}.role", name)));
  MB_ASSIGN(message.content, text_of(from.content, fmt::format("{}.content", name)));
  MB_ASSIGN(message.reasoning, text_of(from.reasoning, fmt::format("{}.reasoning", name)));
  MB_ASSIGN(message.tool_call_id, text_of(from.tool_call_id, fmt::format("{}.tool_call_id", name)));
  MB_TRY(for_each(from.tool_calls, from.num_tool_calls, fmt::format("{}.tool_calls", name),
                  [&](const mb_tool_call& call, const std::string& where) -> Result<void> {
                    MB_ASSIGN(ToolCall taken, call_of(call, where));
                    message.tool_calls.push_back(std::move(taken));
                    return {};
                  }));
  return message;
}

Result<void> check_one_prompt(const mb_request& from) {
  const int given =
      int{from.num_ids > 0} + int{from.text.data != nullptr} + int{from.num_messages > 0};
  if (given == 1) return {};
  return base::usage_error("prompt: expected one of ids, text and messages, got {}",
                           given == 0 ? "none" : "more than one");
}

Result<void> take_prompt(const mb_request& from, Request* request) {
  MB_ASSIGN(const auto ids, items_of(from.ids, from.num_ids, "ids"));
  request->ids.assign(ids.begin(), ids.end());
  request->text_is_set = from.text.data != nullptr;
  MB_ASSIGN(request->text, text_of(from.text, "text"));
  MB_TRY(for_each(from.messages, from.num_messages, "messages",
                  [&](const mb_message& message, const std::string& where) -> Result<void> {
                    MB_ASSIGN(Message taken, message_of(message, where));
                    request->messages.push_back(std::move(taken));
                    return {};
                  }));
  MB_TRY(check_one_prompt(from));
  MB_ASSIGN(request->parse_special, flag(from.parse_special, "parse_special"));
  if (request->parse_special && !request->text_is_set) {
    return base::usage_error("parse_special: goes with text, got another prompt");
  }
  MB_ASSIGN(request->enable_thinking, flag(from.enable_thinking, "enable_thinking"));
  MB_ASSIGN(request->tools, text_of(from.tools, "tools"));
  return {};
}

Result<void> take_stops(const mb_request& from, Request* request) {
  MB_ASSIGN(const auto stops, items_of(from.stop, from.num_stop, "stop"));
  for (size_t i = 0; i < stops.size(); ++i) {
    MB_ASSIGN(std::string stop, text_of(stops[i], fmt::format("stop[{}]", i)));
    request->stop.push_back(std::move(stop));
  }
  return {};
}

// An event, and what its pointers point to.
bool show(const TokenEvent& event, mb_on_event on_event, void* user) {
  const std::string text(event.text);
  mb_event shown = {};
  shown.size = sizeof(shown);
  shown.text = c_text(text);
  shown.id = event.id;
  shown.piece = static_cast<mb_piece>(event.kind);
  shown.answer_idx = event.answer_idx;
  mb_tool_call call = {};
  if (event.call != nullptr) {
    call = view_of(*event.call);
    shown.call = &call;
  }
  std::vector<mb_token_logprob> top;
  mb_token_logprobs logprobs = {};
  if (event.logprobs != nullptr) {
    top = top_of(*event.logprobs);
    logprobs = view_of(*event.logprobs, top);
    shown.logprobs = &logprobs;
  }
  return on_event(&shown, user) != 0;
}

static_assert(static_cast<int>(OutputPiece::Kind::kContent) == MB_PIECE_CONTENT);
static_assert(static_cast<int>(OutputPiece::Kind::kReasoning) == MB_PIECE_REASONING);
static_assert(static_cast<int>(OutputPiece::Kind::kToolCall) == MB_PIECE_TOOL_CALL);

mb_request defaults(const SamplingOptions& sampling) {
  const Request request;
  mb_request to = {};
  to.size = sizeof(to);
  to.max_tokens = request.max_tokens;
  to.temperature = sampling.temperature;
  to.top_k = sampling.top_k;
  to.top_p = sampling.top_p;
  to.min_p = sampling.min_p;
  to.repetition_penalty = sampling.repetition_penalty;
  to.seed = sampling.seed;
  to.answer_idx = request.answer_idx;
  to.num_answers = request.num_answers;
  to.top_logprobs = request.top_logprobs;
  to.priority = request.priority;
  to.timeout_ms = request.timeout_ms;
  return to;
}

}  // namespace

Result<Request> request_of(const mb_request* request) {
  MB_ASSIGN(const mb_request from, read_struct(request, defaults({}), "request"));
  Request to;
  MB_TRY(take_prompt(from, &to));
  MB_TRY(take_stops(from, &to));
  to.max_tokens = from.max_tokens;
  to.sampling = {.temperature = from.temperature,
                 .top_k = from.top_k,
                 .top_p = from.top_p,
                 .min_p = from.min_p,
                 .repetition_penalty = from.repetition_penalty,
                 .seed = from.seed};
  MB_ASSIGN(to.ignore_eos, flag(from.ignore_eos, "ignore_eos"));
  to.answer_idx = from.answer_idx;
  to.num_answers = from.num_answers;
  to.top_logprobs = from.top_logprobs;
  to.priority = from.priority;
  to.timeout_ms = from.timeout_ms;
  return to;
}

OnEvent event_callback(mb_on_event on_event, void* user) {
  if (on_event == nullptr) return {};
  return [on_event, user](const TokenEvent& event) { return show(event, on_event, user); };
}

mb_tool_call view_of(const ToolCall& call) {
  return {sizeof(mb_tool_call), c_text(call.name), c_text(call.arguments), c_text(call.id)};
}

std::vector<mb_token_logprob> top_of(const TokenLogprobs& logprobs) {
  std::vector<mb_token_logprob> top;
  top.reserve(logprobs.top.size());
  for (const TokenLogprob& t : logprobs.top) top.push_back({t.id, t.logprob});
  return top;
}

mb_token_logprobs view_of(const TokenLogprobs& logprobs, const std::vector<mb_token_logprob>& top) {
  return {sizeof(mb_token_logprobs),
          {logprobs.chosen.id, logprobs.chosen.logprob},
          top.empty() ? nullptr : top.data(),
          top.size()};
}

}  // namespace markbase::capi

using namespace markbase;        // NOLINT: the C functions stand outside
using namespace markbase::capi;  // NOLINT

mb_status mb_request_init(mb_request* request, size_t size, const mb_engine* engine,
                          mb_error** error) {
  return door("mb_request_init", error, [&] {
    const SamplingOptions sampling =
        engine == nullptr ? SamplingOptions{} : engine->engine.info().sampling_defaults;
    return init_struct(defaults(sampling), request, size, "request");
  });
}

mb_status mb_submit(mb_engine* engine, const mb_request* request, mb_on_event on_event, void* user,
                    mb_request_handle** handle, mb_error** error) {
  return door("mb_submit", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(handle, "handle"));
    MB_ASSIGN(Request asked, request_of(request));
    auto holder = std::make_unique<mb_request_handle>();
    MB_ASSIGN(holder->handle,
              engine->engine.submit(std::move(asked), event_callback(on_event, user)));
    *handle = holder.release();
    return {};
  });
}

mb_status mb_cancel(mb_request_handle* handle, mb_error** error) {
  return door("mb_cancel", error, [&]() -> Result<void> {
    MB_TRY(need(handle, "handle"));
    handle->handle->cancel();
    return {};
  });
}

mb_status mb_wait(mb_request_handle* handle, mb_completions** completions, size_t* num_completions,
                  mb_error** error) {
  return door("mb_wait", error, [&]() -> Result<void> {
    MB_TRY(need(handle, "handle"));
    MB_TRY(need(completions, "completions"));
    MB_ASSIGN(auto list, handle->handle->wait_all());
    auto holder = std::make_unique<mb_completions>(std::move(list));
    if (num_completions != nullptr) *num_completions = holder->list.size();
    *completions = holder.release();
    return {};
  });
}

void mb_request_handle_free(mb_request_handle* handle) { delete handle; }

mb_status mb_generate(mb_engine* engine, const mb_request* request, mb_on_event on_event,
                      void* user, mb_completions** completions, size_t* num_completions,
                      mb_error** error) {
  return door("mb_generate", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(completions, "completions"));
    MB_ASSIGN(Request asked, request_of(request));
    MB_ASSIGN(auto list,
              engine->engine.generate_all(std::move(asked), event_callback(on_event, user)));
    auto holder = std::make_unique<mb_completions>(std::move(list));
    if (num_completions != nullptr) *num_completions = holder->list.size();
    *completions = holder.release();
    return {};
  });
}

mb_status mb_prompt_ids(const mb_engine* engine, const mb_request* request, int32_t** ids,
                        size_t* num_ids, mb_error** error) {
  return door("mb_prompt_ids", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(ids, "ids"));
    MB_TRY(need(num_ids, "num_ids"));
    MB_ASSIGN(const Request asked, request_of(request));
    MB_ASSIGN(const auto list, engine->engine.prompt_ids(asked));
    MB_ASSIGN(*ids, copy_of(list));
    *num_ids = list.size();
    return {};
  });
}
