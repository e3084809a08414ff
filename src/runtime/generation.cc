#include "runtime/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "runtime/answer_text.h"
#include "runtime/request_prompt.h"

namespace markbase::runtime {
namespace {

using Clock = RequestState::Clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

ops::SamplingParams sampling_params(const Request& request) {
  const SamplingOptions& s = request.sampling;
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .repetition_penalty = s.repetition_penalty,
          .seed = s.seed,
          .answer_idx = request.answer_idx};
}

// A sequence that is closed whatever happens.
class OpenSequence {
 public:
  explicit OpenSequence(ModelRunner& runner) : runner_(runner), idx_(runner.open_sequence()) {}
  ~OpenSequence() {
    if (idx_ >= 0) runner_.close_sequence(idx_);
  }
  OpenSequence(const OpenSequence&) = delete;
  OpenSequence& operator=(const OpenSequence&) = delete;
  int idx() const { return idx_; }

 private:
  ModelRunner& runner_;
  int idx_;
};

class Answer {
 public:
  Answer(LoadedModel& model, RequestState& state)
      : model_(model),
        state_(state),
        sequence_(*model.runner),
        params_(sampling_params(state.request)),
        text_(*model.tokenizer, state.request, state.prompt_ids) {
    completion_.prompt_ids = state.prompt_ids;
    rows_.reserve(static_cast<size_t>(model.runner_options.prefill_chunk_tokens));
  }

  Result<Completion> run() {
    MB_CHECK(sequence_.idx() >= 0);
    const auto start = Clock::now();
    int32_t id = -1;
    if (state_.request.max_tokens == 0) {
      end("length");
    } else {
      MB_ASSIGN(id, prefill());
    }
    const auto first = Clock::now();
    while (!ended_) {
      if (!accept(id)) break;
      MB_ASSIGN(id, decode(id));
    }
    finish_text();
    fill_timings(start, first, Clock::now());
    return std::move(completion_);
  }

 private:
  // The whole prompt in chunks; the id drawn after it, or -1 when the request was cancelled.
  Result<int32_t> prefill() {
    const std::span<const int32_t> ids = state_.prompt_ids;
    const auto chunk = static_cast<size_t>(model_.runner_options.prefill_chunk_tokens);
    model_.runner->set_seen(sequence_.idx(), ids);
    const PromptProgress told(model_.progress, ids.size());
    for (size_t begin = 0; begin < ids.size(); begin += chunk) {
      if (state_.cancelled()) {
        end("cancelled");
        return -1;
      }
      const size_t count = std::min(chunk, ids.size() - begin);
      told.at(begin);
      fill_rows(ids.subspan(begin, count), static_cast<int64_t>(begin), sequence_.idx(), &rows_);
      if (begin + count == ids.size()) return step();
      MB_TRY(model_.runner->run(rows_));
    }
    return -1;
  }

  Result<int32_t> decode(int32_t id) {
    const auto position =
        static_cast<int64_t>(state_.prompt_ids.size() + completion_.ids.size()) - 1;
    fill_rows({&id, 1}, position, sequence_.idx(), &rows_);
    return step();
  }

  Result<int32_t> step() {
    const auto output = static_cast<int32_t>(rows_.size()) - 1;
    int32_t id = -1;
    MB_TRY(model_.runner->run_and_sample(rows_, {&output, 1}, {&params_, 1}, {&id, 1}));
    return id;
  }

  // Takes the id into the answer. False: the answer is complete.
  bool accept(int32_t id) {
    const std::vector<int32_t>& stop_ids = model_.generation.stop_ids;
    if (state_.cancelled()) return end("cancelled");
    if (!state_.request.ignore_eos &&
        std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
      return end("stop");
    }
    completion_.ids.push_back(id);
    const std::vector<OutputPiece> pieces = text_.push(id);
    if (text_.stopped()) end("stop");
    if (!show(pieces, id)) return end("cancelled");
    if (ended_) return false;
    const auto generated = static_cast<int64_t>(completion_.ids.size());
    const auto used = static_cast<int64_t>(state_.prompt_ids.size()) + generated;
    const int64_t most = state_.request.max_tokens;
    // The last position of the context can be sampled for, but not decoded from.
    if ((most >= 0 && generated >= most) || used > model_.runner_options.context_tokens) {
      return end("length");
    }
    return true;
  }

  bool end(const char* reason) {
    if (!ended_) completion_.finish_reason = reason;
    ended_ = true;
    return false;
  }

  // At least one event a token, even where it has nothing to show.
  bool show(const std::vector<OutputPiece>& pieces, int32_t id) {
    if (!state_.on_event) return true;
    if (pieces.empty()) return state_.on_event({{}, id});
    for (const OutputPiece& piece : pieces) {
      const ToolCall* call = piece.kind == OutputPiece::Kind::kToolCall ? &piece.call : nullptr;
      if (!state_.on_event({piece.text, std::exchange(id, -1), piece.kind, call})) return false;
    }
    return true;
  }

  // What was held back turned out not to be a stop string, or a marker.
  void finish_text() {
    const std::vector<OutputPiece> rest = text_.finish(completion_.finish_reason == "length");
    if (!rest.empty()) (void)show(rest, -1);
    text_.move_to(&completion_);
  }

  void fill_timings(Clock::time_point start, Clock::time_point first, Clock::time_point last) {
    Timings& t = completion_.timings;
    t.load_ms = model_.load_ms;
    t.prompt_tokens = static_cast<int64_t>(state_.prompt_ids.size());
    // Where nothing may be generated, nothing was read and no token came first.
    if (state_.request.max_tokens != 0) {
      t.prompt_ms = ms_between(start, first);
      t.ttft_ms = ms_between(state_.submitted, first);
    }
    t.generated_tokens = static_cast<int64_t>(completion_.ids.size());
    t.decode_ms = ms_between(first, last);
    const bool measurable = t.generated_tokens > 1 && t.decode_ms > 0;
    t.tokens_per_s =
        measurable ? static_cast<double>(t.generated_tokens - 1) * 1e3 / t.decode_ms : 0;
  }

  LoadedModel& model_;
  RequestState& state_;
  OpenSequence sequence_;
  ops::SamplingParams params_;
  AnswerText text_;
  std::vector<StepRow> rows_;
  Completion completion_;
  bool ended_ = false;
};

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

}  // namespace

Result<void> check_request(const Request& request) {
  const SamplingOptions& s = request.sampling;
  const auto in = [](float value, float low, float high) { return value >= low && value <= high; };
  if (!(s.temperature >= 0.0F && std::isfinite(s.temperature))) {
    return base::usage_error("temperature: expected 0 or more, got {}", s.temperature);
  }
  if (s.top_k < 0) return base::usage_error("top_k: expected 0 (off) or more, got {}", s.top_k);
  if (!(s.top_p > 0.0F && s.top_p <= 1.0F)) {
    return base::usage_error("top_p: expected above 0 and at most 1, got {}", s.top_p);
  }
  if (!in(s.min_p, 0.0F, 1.0F)) return base::usage_error("min_p: expected 0 to 1, got {}", s.min_p);
  if (!(s.repetition_penalty > 0.0F && std::isfinite(s.repetition_penalty))) {
    return base::usage_error("repetition_penalty: expected above 0, got {}", s.repetition_penalty);
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
  const bool chat = !request.messages.empty() && request.ids.empty() && request.text.empty() &&
                    !request.text_is_set;
  if (!chat && (request.enable_thinking || !request.tools.empty())) {
    return base::usage_error("{}: goes with messages, got a plain prompt",
                             request.enable_thinking ? "thinking" : "tools");
  }
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

Result<Completion> generate(LoadedModel& model, RequestState& state) {
  return Answer(model, state).run();
}

}  // namespace markbase::runtime
