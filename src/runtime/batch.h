// Answers stepped together: plans a step, runs it, gives every answer its token, and lets go of
// what is complete. One thread, no waiting: EngineThread drives it, tests do so step by step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/request_state.h"
#include "runtime/scheduler.h"

namespace markbase::runtime {

// The logits that a token is drawn from: of the answer `number` to a request, at the position after
// its first `num_tokens` ids. For tests.
using OnDraw = std::function<void(const RequestState& request, size_t number, int64_t num_tokens,
                                  std::span<const float> logits)>;

class Batch {
 public:
  // The model, whose runner it uses, outlives it.
  explicit Batch(LoadedModel& model);
  ~Batch();  // ends what is under way with the reason "cancelled"

  void set_observer(OnDraw on_draw) { on_draw_ = std::move(on_draw); }
  // Called when answers have left and before their requests are told.
  void set_on_left(std::function<void()> on_left) { on_left_ = std::move(on_left); }

  // Takes in all answers to a request. On an exception (no memory) none of them.
  void add(const std::shared_ptr<RequestState>& request);
  // Ends what was cancelled or is late, takes one step, completes what is complete. False: nothing
  // is under way.
  bool step();
  // Hands the runner over: everything waits, to go on later to the same bits.
  void pause() { scheduler_.preempt_all(); }
  // Whether it should be given time before it is paused again.
  bool is_catching_up() const { return scheduler_.is_catching_up(); }
  // Ends everything.
  void end_all(std::string_view reason);

  EngineStats stats() const;

 private:
  void end_interrupted();
  // Plans and runs a step; a step for pooling answers.
  void step_answers();
  void step_pooling();
  Result<void> pool_rows(Answer& answer);
  // The rows of some pieces, all of the plan or one; ids_ and logprobs_ are of those that draw.
  // Errors: as the runner's, and kOutOfMemory.
  Result<void> run_pieces(std::span<const StepPlan::Piece> pieces);
  Result<void> run_pieces_unguarded(std::span<const StepPlan::Piece> pieces);
  // What output `output` of the last run drew.
  void give_token(const StepPlan::Piece& piece, size_t output);
  void give_tokens();
  void run_one_by_one();
  void show_logits(const StepPlan::Piece& piece, std::span<const float> logits) const;
  void complete_ended();
  void tell_progress();
  void end_progress();
  void tell(uint64_t done);

  LoadedModel& model_;
  Scheduler scheduler_;
  StepPlan plan_;
  // Of the outputs of a step.
  std::vector<const StepPlan::Piece*> drawing_;
  std::vector<int32_t> output_rows_;
  std::vector<ops::SamplingParams> params_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> num_top_;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<int32_t> pooled_rows_;
  std::vector<std::unique_ptr<Sequence>> ended_;
  OnDraw on_draw_;
  std::function<void()> on_left_;
  int64_t next_order_ = 0;
  uint64_t told_total_ = 0;  // tokens of the prompts that progress is being told of; 0: of none
  EngineStats stats_;
};

}  // namespace markbase::runtime
