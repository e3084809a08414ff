// One answer on its way: its ids, its text, and when it is complete. Knows nothing of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "markbase/engine.h"
#include "ops/sample.h"
#include "runtime/answer_text.h"
#include "runtime/loaded_model.h"
#include "runtime/request_state.h"

namespace markbase::runtime {

// Used on the engine's thread alone. The model outlives it.
class Answer {
 public:
  // `number`: 0 for the first answer to the request, 1 for the next.
  Answer(const LoadedModel& model, std::shared_ptr<RequestState> request, size_t number);

  const Request& request() const { return request_->request; }
  const RequestState& state() const { return *request_; }
  size_t number() const { return number_; }
  const ops::SamplingParams& sampling() const { return sampling_; }
  // The prompt, then what was taken so far.
  std::span<const int32_t> ids() const { return ids_; }
  int64_t num_prompt_tokens() const { return num_prompt_; }
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }

  // Its first step begins, with so many tokens of the prompt there already.
  void start(int64_t cached_tokens);
  // Takes the id drawn after ids(), shows it, and ends the answer where it is complete.
  void take(int32_t id, std::optional<TokenLogprobs> logprobs);
  // Whether its hidden states are asked for instead of tokens.
  bool pools() const { return request_->pooler.has_value(); }
  bool needs_all_hidden() const { return request_->pooler->needs_all(); }
  // Of the next position of a pooling answer that its pooler needs.
  void add_hidden(std::span<const float> hidden);
  // Thrown out of the cache: everything is computed again.
  void restart();
  // Ends it from without: "cancelled", "timeout", "length".
  void end(std::string_view reason);
  void fail(Error error);
  bool ended() const { return ended_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  // Hands what it came to over to the request. Once, after the end.
  void complete();

 private:
  using Clock = RequestState::Clock;

  void take_unguarded(int32_t id, std::optional<TokenLogprobs> logprobs);
  bool is_stop_id(int32_t id) const;
  bool show(const std::vector<OutputPiece>& pieces, int32_t id, const TokenLogprobs* logprobs);
  void finish();
  void fill_timings();

  const LoadedModel& model_;
  std::shared_ptr<RequestState> request_;
  size_t number_;
  ops::SamplingParams sampling_;
  AnswerText text_;
  std::vector<int32_t> ids_;
  int64_t num_prompt_;
  Completion completion_;
  std::optional<Error> error_;
  bool ended_ = false;
  int64_t cached_tokens_ = 0;
  std::optional<Clock::time_point> started_, first_;
  Clock::time_point last_;
};

}  // namespace markbase::runtime
