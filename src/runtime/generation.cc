#include "runtime/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "runtime/request_prompt.h"

namespace markbase::runtime {
namespace {

Result<void> check_answers(const Request& request) {
  if (request.num_answers < 1 || request.num_answers > kMostAnswers) {
    return base::usage_error("num_answers: expected 1 to {}, got {}", kMostAnswers,
                             request.num_answers);
  }
  // The last one's number keys its random numbers as the others' do.
  const auto more = static_cast<uint32_t>(request.num_answers - 1);
  if (request.answer_idx > std::numeric_limits<uint32_t>::max() - more) {
    return base::usage_error("answer_idx: expected at most {} for {} answers, got {}",
                             std::numeric_limits<uint32_t>::max() - more, request.num_answers,
                             request.answer_idx);
  }
  if (request.top_logprobs < -1 || request.top_logprobs > kMostTopLogprobs) {
    return base::usage_error("top_logprobs: expected 0 to {} (or -1: none), got {}",
                             kMostTopLogprobs, request.top_logprobs);
  }
  return {};
}

// None is checked where the ids are made.
Result<void> check_source(const Request& request) {
  const bool text = request.text_is_set || !request.text.empty();
  const bool messages = !request.messages.empty();
  if (int{!request.ids.empty()} + int{text} + int{messages} > 1) {
    return base::usage_error("prompt: expected one of ids, text and messages, got more than one");
  }
  if (!messages && (request.enable_thinking || !request.tools.empty())) {
    return base::usage_error("{}: goes with messages, got a plain prompt",
                             request.enable_thinking ? "thinking" : "tools");
  }
  if (request.parse_special && !text) {
    return base::usage_error("parse_special: goes with text, got another prompt");
  }
  return {};
}

}  // namespace

Result<void> check_request(const Request& request) {
  const SamplingOptions& s = request.sampling;
  const auto in = [](float value, float low, float high) { return value >= low && value <= high; };
  if (!in(s.temperature, 0.0F, kMostTemperature)) {
    return base::usage_error("temperature: expected 0 to {}, got {}", kMostTemperature,
                             s.temperature);
  }
  if (s.top_k < 0) return base::usage_error("top_k: expected 0 (off) or more, got {}", s.top_k);
  if (!(s.top_p > 0.0F && s.top_p <= 1.0F)) {
    return base::usage_error("top_p: expected above 0 and at most 1, got {}", s.top_p);
  }
  if (!in(s.min_p, 0.0F, 1.0F)) return base::usage_error("min_p: expected 0 to 1, got {}", s.min_p);
  if (!in(s.repetition_penalty, kLeastPenalty, kMostPenalty)) {
    return base::usage_error("repetition_penalty: expected {} to {}, got {}", kLeastPenalty,
                             kMostPenalty, s.repetition_penalty);
  }
  if (request.max_tokens < -1) {
    return base::usage_error("max_tokens: expected 0 or more (or -1: no limit), got {}",
                             request.max_tokens);
  }
  MB_TRY(check_answers(request));
  if (request.timeout_ms < 0 || request.timeout_ms > kMostTimeoutMs) {
    return base::usage_error("timeout_ms: expected 0 (none) to {}, got {}", kMostTimeoutMs,
                             request.timeout_ms);
  }
  MB_TRY(check_source(request));
  for (const std::string& stop : request.stop) {
    if (stop.empty())
      return base::usage_error("stop: expected a string with text, got an empty one");
  }
  return {};
}

Result<void> check_prompt(std::span<const int32_t> ids, const LoadedModel& model) {
  if (ids.empty()) return base::usage_error("the prompt is empty: expected at least one token");
  const int64_t context = model.runner_options.context_tokens;
  if (static_cast<int64_t>(ids.size()) > context) {
    return base::usage_error("the prompt is too long: {} tokens, and the context holds {} (--ctx)",
                             ids.size(), context);
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= model.config.vocab_size) {
      return base::usage_error("id {}: expected 0 to {}", id, model.config.vocab_size - 1);
    }
  }
  return {};
}

Result<std::vector<int32_t>> prompt_ids(const Request& request, const LoadedModel& model) {
  std::vector<int32_t> ids;
  if (!request.ids.empty()) {
    ids = request.ids;
  } else if (!model.has_tokenizer) {
    return base::bad_input("{}: expected a tokenizer, got none: this model takes ids only",
                           model.path.path);
  } else if (request.text_is_set || !request.text.empty()) {
    ids = model.tokenizer->encode(request.text,
                                  {.add_bos = true, .parse_special = request.parse_special});
  } else if (!request.messages.empty()) {
    MB_ASSIGN(ChatPrompt prompt, request_prompt(*model.tokenizer, request));
    ids = std::move(prompt.ids);
  }
  MB_TRY(check_prompt(ids, model));
  return ids;
}

PromptProgress::~PromptProgress() {
  try {
    at(num_tokens_);
  } catch (...) {
    // The end is told for the sake of whoever looks on; the call itself is over.
  }
}

void PromptProgress::at(size_t tokens) const {
  if (progress_) progress_({"reading the prompt", tokens, num_tokens_, Progress::Unit::kTokens});
}

void fill_rows(std::span<const int32_t> ids, int64_t begin, int sequence,
               std::vector<StepRow>* rows) {
  rows->clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    rows->push_back({ids[i], static_cast<int32_t>(begin + static_cast<int64_t>(i)), sequence});
  }
}

}  // namespace markbase::runtime
