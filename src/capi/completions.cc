#include "base/error.h"
#include "capi/door.h"
#include "capi/handles.h"
#include "capi/requests.h"
#include "capi/structs.h"

namespace markbase::capi {
namespace {

Result<void> check_idx(size_t idx, size_t count, std::string_view name) {
  if (idx < count) return {};
  return base::usage_error("{}: expected less than {}, got {}", name, count, idx);
}

Result<const Completion*> answer(const mb_completions* completions, size_t idx) {
  MB_TRY(need(completions, "completions"));
  MB_TRY(check_idx(idx, completions->list.size(), "idx"));
  return &completions->list[idx];
}

mb_completion view_of(const Completion& from) {
  mb_completion to = {};
  to.text = c_text(from.text);
  to.reasoning = c_text(from.reasoning);
  to.finish_reason = c_text(from.finish_reason);
  to.ids = from.ids.data();
  to.num_ids = from.ids.size();
  to.prompt_ids = from.prompt_ids.data();
  to.num_prompt_ids = from.prompt_ids.size();
  to.num_tool_calls = from.tool_calls.size();
  to.num_broken_calls = from.broken_calls.size();
  to.num_labels = from.labels.size();
  to.num_logprobs = from.logprobs.size();
  to.answer_idx = from.answer_idx;
  return to;
}

mb_timings view_of(const Timings& from) {
  mb_timings to = {};
  to.load_ms = from.load_ms;
  to.prompt_tokens = from.prompt_tokens;
  to.cached_tokens = from.cached_tokens;
  to.queue_ms = from.queue_ms;
  to.prompt_ms = from.prompt_ms;
  to.ttft_ms = from.ttft_ms;
  to.generated_tokens = from.generated_tokens;
  to.decode_ms = from.decode_ms;
  to.tokens_per_s = from.tokens_per_s;
  return to;
}

std::vector<std::vector<std::vector<mb_token_logprob>>> tops_of(
    const std::vector<Completion>& list) {
  std::vector<std::vector<std::vector<mb_token_logprob>>> tops;
  for (const Completion& completion : list) {
    tops.emplace_back();
    for (const TokenLogprobs& logprobs : completion.logprobs) {
      tops.back().push_back(top_of(logprobs));
    }
  }
  return tops;
}

}  // namespace
}  // namespace markbase::capi

using namespace markbase;        // NOLINT: the C functions stand outside
using namespace markbase::capi;  // NOLINT

mb_completions::mb_completions(std::vector<Completion> completions)
    : list(std::move(completions)), tops(tops_of(list)) {}

mb_status mb_completion_get(const mb_completions* completions, size_t idx,
                            mb_completion* completion, mb_error** error) {
  return door("mb_completion_get", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    return write_struct(view_of(*from), completion, "completion");
  });
}

mb_status mb_completion_timings(const mb_completions* completions, size_t idx, mb_timings* timings,
                                mb_error** error) {
  return door("mb_completion_timings", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    return write_struct(view_of(from->timings), timings, "timings");
  });
}

mb_status mb_completion_tool_call(const mb_completions* completions, size_t idx, size_t call_idx,
                                  mb_tool_call* call, mb_error** error) {
  return door("mb_completion_tool_call", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    MB_TRY(check_idx(call_idx, from->tool_calls.size(), "call_idx"));
    return write_struct(view_of(from->tool_calls[call_idx]), call, "call");
  });
}

mb_status mb_completion_broken_call(const mb_completions* completions, size_t idx, size_t call_idx,
                                    mb_broken_call* call, mb_error** error) {
  return door("mb_completion_broken_call", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    MB_TRY(check_idx(call_idx, from->broken_calls.size(), "call_idx"));
    const BrokenCall& broken = from->broken_calls[call_idx];
    const mb_broken_call view = {sizeof(view), c_text(broken.text), c_text(broken.why),
                                 broken.truncated ? 1 : 0};
    return write_struct(view, call, "call");
  });
}

mb_status mb_completion_label(const mb_completions* completions, size_t idx, size_t label_idx,
                              mb_string* label, mb_error** error) {
  return door("mb_completion_label", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    MB_TRY(check_idx(label_idx, from->labels.size(), "label_idx"));
    MB_TRY(need(label, "label"));
    *label = c_text(from->labels[label_idx]);
    return {};
  });
}

mb_status mb_completion_logprobs(const mb_completions* completions, size_t idx, size_t token_idx,
                                 mb_token_logprobs* logprobs, mb_error** error) {
  return door("mb_completion_logprobs", error, [&]() -> Result<void> {
    MB_ASSIGN(const Completion* from, answer(completions, idx));
    MB_TRY(check_idx(token_idx, from->logprobs.size(), "token_idx"));
    const auto& top = completions->tops[idx][token_idx];
    return write_struct(view_of(from->logprobs[token_idx], top), logprobs, "logprobs");
  });
}

void mb_completions_free(mb_completions* completions) { delete completions; }
