#include "runtime/answer.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace markbase::runtime {
namespace {

double ms_between(RequestState::Clock::time_point from, RequestState::Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

ops::SamplingParams sampling_params(const Request& request, uint32_t answer_idx) {
  const SamplingOptions& s = request.sampling;
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .repetition_penalty = s.repetition_penalty,
          .seed = s.seed,
          .answer_idx = answer_idx};
}

}  // namespace

Answer::Answer(const LoadedModel& model, std::shared_ptr<RequestState> request, size_t number)
    : model_(model),
      request_(std::move(request)),
      number_(number),
      text_(*model.tokenizer, request_->request, request_->prompt_ids),
      ids_(request_->prompt_ids),
      num_prompt_(static_cast<int64_t>(ids_.size())) {
  completion_.answer_idx = request_->request.answer_idx + static_cast<uint32_t>(number);
  sampling_ = sampling_params(request_->request, completion_.answer_idx);
}

void Answer::start(int64_t cached_tokens) {
  if (started_) return;  // it was preempted meanwhile
  started_ = Clock::now();
  cached_tokens_ = std::min(cached_tokens, num_prompt_);
}

void Answer::take(int32_t id, std::optional<TokenLogprobs> logprobs) {
  last_ = Clock::now();
  if (!first_) first_ = last_;
  try {
    take_unguarded(id, std::move(logprobs));
  } catch (const std::bad_alloc&) {
    fail(base::out_of_memory("no memory for the text of an answer"));
  } catch (const std::exception& e) {
    fail(base::failed("the callback of the request threw: {}", e.what()));
  } catch (...) {
    fail(base::failed("the callback of the request threw"));
  }
}

void Answer::take_unguarded(int32_t id, std::optional<TokenLogprobs> logprobs) {
  if (is_stop_id(id)) return end("stop");
  ids_.push_back(id);
  const std::vector<OutputPiece> pieces = text_.push(id);
  if (logprobs) completion_.logprobs.push_back(*std::move(logprobs));
  if (text_.stopped()) end("stop");
  const TokenLogprobs* shown =
      completion_.logprobs.empty() ? nullptr : &completion_.logprobs.back();
  if (!show(pieces, id, shown)) return end("cancelled");
  const int64_t most = request().max_tokens;
  // The last position of the context can be sampled for, but not decoded from.
  const bool full = num_tokens() > model_.runner_options.context_tokens;
  if (full || (most >= 0 && num_tokens() - num_prompt_ >= most)) end("length");
}

void Answer::add_hidden(std::span<const float> hidden) { request_->pooler->add(hidden); }

void Answer::restart() {
  if (pools()) request_->pooler->clear();
}

bool Answer::is_stop_id(int32_t id) const {
  const std::vector<int32_t>& stop_ids = model_.generation.stop_ids;
  return !request().ignore_eos && std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end();
}

// At least one event a token, even where it has nothing to show.
bool Answer::show(const std::vector<OutputPiece>& pieces, int32_t id,
                  const TokenLogprobs* logprobs) {
  const OnEvent& on_event = request_->on_event;
  if (!on_event) return true;
  TokenEvent event;
  event.answer_idx = completion_.answer_idx;
  event.id = id;
  event.logprobs = logprobs;
  if (pieces.empty()) return on_event(event);
  for (const OutputPiece& piece : pieces) {
    event.text = piece.text;
    event.kind = piece.kind;
    event.call = piece.kind == OutputPiece::Kind::kToolCall ? &piece.call : nullptr;
    if (!on_event(event)) return false;
    event.id = -1;
    event.logprobs = nullptr;
  }
  return true;
}

void Answer::end(std::string_view reason) {
  if (!ended_) completion_.finish_reason = reason;
  ended_ = true;
}

void Answer::fail(Error error) {
  if (!error_) error_ = std::move(error);
  ended_ = true;
}

void Answer::complete() {
  if (!error_) {
    try {
      finish();
    } catch (const std::bad_alloc&) {
      fail(base::out_of_memory("no memory for the text of an answer"));
    } catch (const std::exception& e) {
      fail(base::failed("the callback of the request threw: {}", e.what()));
    } catch (...) {
      fail(base::failed("the callback of the request threw"));
    }
  }
  if (error_) return request_->complete(number_, *std::move(error_));
  request_->complete(number_, std::move(completion_));
}

// What was held back turned out not to be a stop string, or a marker.
void Answer::finish() {
  const std::vector<OutputPiece> rest = text_.finish(completion_.finish_reason == "length");
  if (!rest.empty()) (void)show(rest, -1, nullptr);
  text_.move_to(&completion_);
  fill_timings();
  completion_.prompt_ids = request_->prompt_ids;
  completion_.ids.assign(ids_.begin() + num_prompt_, ids_.end());
}

void Answer::fill_timings() {
  Timings& t = completion_.timings;
  t.load_ms = model_.load_ms;
  t.prompt_tokens = num_prompt_;
  t.cached_tokens = cached_tokens_;
  if (started_) t.queue_ms = ms_between(request_->submitted, *started_);
  t.generated_tokens = num_tokens() - num_prompt_;
  // Where nothing was generated, no token came first.
  if (!first_) return;
  t.prompt_ms = ms_between(*started_, *first_);
  t.ttft_ms = ms_between(request_->submitted, *first_);
  t.decode_ms = ms_between(*first_, last_);
  const bool measurable = t.generated_tokens > 1 && t.decode_ms > 0;
  t.tokens_per_s = measurable ? static_cast<double>(t.generated_tokens - 1) * 1e3 / t.decode_ms : 0;
}

}  // namespace markbase::runtime
