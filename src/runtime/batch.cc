#include "runtime/batch.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace markbase::runtime {
namespace {

using Clock = RequestState::Clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

Batch::Batch(LoadedModel& model) : model_(model), scheduler_(*model.runner) {
  const RunnerOptions& options = model.runner->options();
  const auto most_sequences = static_cast<size_t>(options.max_sequences);
  plan_.reserve(static_cast<size_t>(options.prefill_chunk_tokens) + most_sequences, most_sequences);
  drawing_.reserve(most_sequences);
  output_rows_.reserve(most_sequences);
  params_.reserve(most_sequences);
  ids_.reserve(most_sequences);
  num_top_.reserve(most_sequences);
  logprobs_.reserve(most_sequences);
}

Batch::~Batch() { end_all("cancelled"); }

void Batch::add(const std::shared_ptr<RequestState>& request) {
  const auto count = static_cast<size_t>(request->request.num_answers);
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto group = std::make_shared<SequenceGroup>();
  for (size_t number = 0; number < count; ++number) {
    auto sequence = std::make_unique<Sequence>();
    sequence->answer = std::make_unique<Answer>(model_, request, number);
    sequence->group = group;
    sequence->order = next_order_++;
    if (request->request.max_tokens == 0) sequence->answer->end("length");
    sequences.push_back(std::move(sequence));
  }
  group->reader = sequences.front().get();
  // All that is under way may end at once.
  reserve_for(scheduler_.running().size() + scheduler_.waiting().size() + count, &ended_);
  scheduler_.add(std::move(sequences));
}

bool Batch::step() {
  const auto begun = Clock::now();
  const double stepped_ms = stats_.step_ms;
  end_interrupted();
  complete_ended();
  end_progress();
  if (scheduler_.idle()) return false;
  step_answers();
  step_pooling();
  end_progress();
  complete_ended();
  const double model_ms = stats_.step_ms - stepped_ms;
  stats_.scheduling_ms += ms_between(begun, Clock::now()) - model_ms;
  return true;
}

void Batch::step_answers() {
  scheduler_.plan_step(&plan_);
  if (plan_.pieces.empty()) return;
  tell_progress();
  const auto begun = Clock::now();
  const Result<void> done = run_pieces(plan_.pieces);
  const double ms = ms_between(begun, Clock::now());
  if (done.ok()) {
    scheduler_.learn(plan_, ms);
    give_tokens();
  } else {
    run_one_by_one();
  }
  ++stats_.steps;
  stats_.prompt_tokens += plan_.num_prompt;
  stats_.step_ms += ms;
}

void Batch::step_pooling() {
  scheduler_.plan_pooling(plan_.num_decoding, &plan_);
  if (plan_.pieces.empty()) return;
  Sequence& sequence = *plan_.pieces.front().sequence;
  const auto begun = Clock::now();
  Result<void> done;
  try {
    done = pool_rows(*sequence.answer);
  } catch (const std::bad_alloc&) {
    done = base::out_of_memory("no memory for the rows that are pooled");
  }
  stats_.step_ms += ms_between(begun, Clock::now());
  stats_.prompt_tokens += plan_.num_prompt;
  ++stats_.steps;
  if (!done.ok()) return sequence.answer->fail(std::move(done).error());
  scheduler_.computed(sequence);
  if (sequence.num_pending() == 0) sequence.answer->end("stop");
}

// The planned rows, all of which are of one answer.
Result<void> Batch::pool_rows(Answer& answer) {
  const auto count = static_cast<int32_t>(plan_.rows.size());
  const bool last = plan_.rows.back().position + 1 == answer.num_tokens();
  const int32_t wanted = answer.needs_all_hidden() ? count : static_cast<int32_t>(last);
  pooled_rows_.resize(static_cast<size_t>(wanted));
  std::iota(pooled_rows_.begin(), pooled_rows_.end(), count - wanted);
  if (wanted == 0) return model_.runner->run(plan_.rows);
  const auto add = [&](int64_t, std::span<const float> hidden) -> Result<void> {
    answer.add_hidden(hidden);
    return {};
  };
  return model_.runner->run_for_hidden(plan_.rows, pooled_rows_, add);
}

Result<void> Batch::run_pieces(std::span<const StepPlan::Piece> pieces) {
  try {
    return run_pieces_unguarded(pieces);
  } catch (const std::bad_alloc&) {
    return base::out_of_memory("no memory for what a step gives");
  }
}

Result<void> Batch::run_pieces_unguarded(std::span<const StepPlan::Piece> pieces) {
  drawing_.clear();
  output_rows_.clear();
  params_.clear();
  num_top_.clear();
  const size_t begin = pieces.front().begin;
  for (const StepPlan::Piece& piece : pieces) {
    if (!piece.draws) continue;
    const Answer& answer = *piece.sequence->answer;
    drawing_.push_back(&piece);
    output_rows_.push_back(static_cast<int32_t>(piece.begin + piece.count - 1 - begin));
    params_.push_back(answer.sampling());
    num_top_.push_back(answer.request().top_logprobs);
  }
  const size_t end = pieces.back().begin + pieces.back().count;
  const auto rows = std::span<const StepRow>(plan_.rows).subspan(begin, end - begin);
  if (drawing_.empty()) return model_.runner->run(rows);
  ids_.resize(drawing_.size());
  logprobs_.resize(drawing_.size());
  const auto on_logits = [&](int64_t output, std::span<const float> logits) -> Result<void> {
    show_logits(*drawing_[static_cast<size_t>(output)], logits);
    return {};
  };
  const OnRow on_row(on_logits);
  SampleOutputs outputs = {.ids = ids_};
  if (on_draw_) outputs.on_logits = &on_row;
  if (std::ranges::any_of(num_top_, [](int32_t count) { return count >= 0; })) {
    outputs.num_top = num_top_;
    outputs.logprobs = logprobs_;
  }
  return model_.runner->run_and_sample(rows, output_rows_, params_, outputs);
}

void Batch::show_logits(const StepPlan::Piece& piece, std::span<const float> logits) const {
  const Answer& answer = *piece.sequence->answer;
  on_draw_(answer.state(), answer.number(), answer.num_tokens(), logits);
}

void Batch::give_token(const StepPlan::Piece& piece, size_t output) {
  ++stats_.generated_tokens;
  std::optional<TokenLogprobs> logprobs;
  if (num_top_[output] >= 0) logprobs = std::move(logprobs_[output]);
  piece.sequence->paused = false;
  piece.sequence->answer->take(ids_[output], std::move(logprobs));
}

void Batch::give_tokens() {
  for (const StepPlan::Piece& piece : plan_.pieces) scheduler_.computed(*piece.sequence);
  // Who shows both on a terminal has taken the progress away when the first text comes.
  end_progress();
  size_t output = 0;
  for (const StepPlan::Piece& piece : plan_.pieces) {
    if (piece.draws) give_token(piece, output++);
  }
}

// One of the answers made the step fail: a key that does not fit the cache, logits that are no
// numbers. Nobody else's answer depends on it, so each runs alone, to the bits of the step.
void Batch::run_one_by_one() {
  for (const StepPlan::Piece& piece : plan_.pieces) {
    Sequence& sequence = *piece.sequence;
    // The step that failed has marked what it drew as seen.
    if (piece.draws) model_.runner->set_seen(sequence.slot, sequence.answer->ids());
    Result<void> done = run_pieces({&piece, 1});
    if (!done.ok()) {
      sequence.answer->fail(std::move(done).error());
      continue;
    }
    scheduler_.computed(sequence);
    end_progress();
    if (piece.draws) give_token(piece, 0);
  }
}

void Batch::end_interrupted() {
  const auto now = Clock::now();
  const auto look_at = [&](const std::unique_ptr<Sequence>& sequence) {
    const std::string_view reason = sequence->answer->state().interruption(now);
    if (!reason.empty()) sequence->answer->end(reason);
  };
  for (const auto& sequence : scheduler_.running()) look_at(sequence);
  for (const auto& sequence : scheduler_.waiting()) look_at(sequence);
}

void Batch::complete_ended() {
  scheduler_.take_ended(&ended_);
  for (const auto& sequence : ended_) stats_.cached_tokens += sequence->answer->cached_tokens();
  if (on_left_ && !ended_.empty()) on_left_();
  for (const auto& sequence : ended_) sequence->answer->complete();
  ended_.clear();
}

void Batch::end_all(std::string_view reason) {
  for (const auto& sequence : scheduler_.running()) sequence->answer->end(reason);
  for (const auto& sequence : scheduler_.waiting()) sequence->answer->end(reason);
  complete_ended();
}

// Of all prompts that are being read, in one.
void Batch::tell_progress() {
  uint64_t done = 0;
  uint64_t total = 0;
  for (const StepPlan::Piece& piece : plan_.pieces) {
    const Answer& answer = *piece.sequence->answer;
    if (piece.sequence->num_computed >= answer.num_prompt_tokens()) continue;
    done += static_cast<uint64_t>(piece.sequence->num_computed);
    total += static_cast<uint64_t>(answer.num_prompt_tokens());
  }
  if (total == 0) return;
  told_total_ = total;
  tell(done);
}

// Nobody reads a prompt any more, whatever became of the last one.
void Batch::end_progress() {
  if (told_total_ == 0) return;
  const auto reads = [](const auto& sequence) {
    return sequence->num_computed < sequence->answer->num_prompt_tokens();
  };
  if (std::ranges::any_of(scheduler_.running(), reads)) return;
  tell(told_total_);
  told_total_ = 0;
}

void Batch::tell(uint64_t done) {
  if (!model_.progress) return;
  try {
    model_.progress({"reading the prompt", done, told_total_, Progress::Unit::kTokens});
  } catch (...) {
    // Of no answer's concern.
    model_.progress = nullptr;
  }
}

EngineStats Batch::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int64_t>(scheduler_.running().size());
  stats.waiting = static_cast<int64_t>(scheduler_.waiting().size());
  stats.preemptions = scheduler_.num_preemptions();
  const KvCache::Usage usage = model_.runner->usage();
  stats.kv_blocks = usage.num_blocks;
  stats.kv_blocks_used = usage.used;
  stats.kv_blocks_kept = usage.kept;
  return stats;
}

}  // namespace markbase::runtime
