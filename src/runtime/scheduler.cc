#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/kv_cache.h"

namespace markbase::runtime {
namespace {

// On its way through a long prompt, a sequence keeps its prefix every so many tokens.
constexpr int64_t kKeepEveryTokens = 2048;
// What a prompt gets of a step, at least, where several share one.
constexpr int64_t kLeastShareTokens = 32;

// Answers to one prompt wait until the first of them has read it.
bool may_come(const std::unique_ptr<Sequence>& sequence) {
  const SequenceGroup& group = *sequence->group;
  return group.prompt_is_read || group.reader == nullptr || group.reader == sequence.get();
}

constexpr int64_t border_below(int64_t tokens) {
  return tokens / ops::kKvBlockTokens * ops::kKvBlockTokens;
}

constexpr int64_t border_above(int64_t tokens) {
  return border_below(tokens + ops::kKvBlockTokens - 1);
}

// Room for the tokens that it has yet to compute, what those that run have yet to take, and the
// next block of everyone: with less somebody would be thrown out again.
constexpr int64_t tokens_to_enter(int64_t missing, int64_t promised, size_t num_running) {
  return missing + promised + ops::kKvBlockTokens * static_cast<int64_t>(num_running + 1);
}

// Blocks of its prompt, or of what it computes again, that a running sequence has not taken yet, in
// tokens.
int64_t promised_to(const Sequence& sequence) {
  if (sequence.is_decoding()) return 0;
  return border_above(sequence.answer->num_tokens()) - border_above(sequence.num_computed);
}

int64_t promised_to(std::span<const std::unique_ptr<Sequence>> sequences) {
  int64_t tokens = 0;
  for (const auto& sequence : sequences) tokens += promised_to(*sequence);
  return tokens;
}

int priority_of(const Sequence& sequence) { return sequence.answer->request().priority; }

bool served_before(const Sequence& a, const Sequence& b) {
  const int a_priority = priority_of(a);
  const int b_priority = priority_of(b);
  return a_priority != b_priority ? a_priority > b_priority : a.order < b.order;
}

void insert(std::unique_ptr<Sequence> sequence, std::vector<std::unique_ptr<Sequence>>* queue) {
  const auto place =
      std::upper_bound(queue->begin(), queue->end(), sequence,
                       [](const auto& a, const auto& b) { return served_before(*a, *b); });
  queue->insert(place, std::move(sequence));
}

}  // namespace

void StepPlan::reserve(size_t rows_at_most, size_t sequences_at_most) {
  pieces.reserve(sequences_at_most);
  rows.reserve(rows_at_most);
}

void StepPlan::clear() {
  pieces.clear();
  rows.clear();
  num_decoding = 0;
  num_prompt = 0;
}

Scheduler::Scheduler(ModelRunner& runner)
    : runner_(runner), budget_(runner.options().prefill_chunk_tokens) {
  const auto most = static_cast<size_t>(runner.options().max_sequences);
  running_.reserve(most);
  prompts_.reserve(most);
  lower_.reserve(most);
  lower_slots_.reserve(most);
  available_.reserve(most + 1);
}

void Scheduler::add(std::vector<std::unique_ptr<Sequence>> sequences) {
  // Room for those that run now and may have to wait again.
  reserve_for(waiting_.size() + running_.size() + sequences.size(), &waiting_);
  for (auto& sequence : sequences) insert(std::move(sequence), &waiting_);
  refused_at_ = -1;
}

void Scheduler::plan_step(StepPlan* plan) {
  plan->clear();
  for (const auto& sequence : running_) sequence->planned_end = sequence->num_computed;
  admit();
  plan_decoding(plan);
  plan_prompts(plan);
}

void Scheduler::plan_pooling(int64_t num_decoding, StepPlan* plan) {
  plan->clear();
  const auto pools = [](const auto& sequence) { return sequence->answer->pools(); };
  const auto first = std::ranges::find_if(running_, pools);
  if (first == running_.end()) return;
  const int64_t tokens = budget_.prompt_tokens(num_decoding);
  if (tokens > 0) plan->num_prompt = plan_prompt(**first, tokens, plan);
}

// --- who runs ---

void Scheduler::admit() {
  while (!waiting_.empty() && !fits_no_better() && admit_first()) {
  }
}

bool Scheduler::fits_no_better() const {
  return refused_at_ >= 0 && runner_.available_tokens() <= refused_at_;
}

// False: the first that may come in has to wait. Nobody overtakes it, so that it gets its turn.
bool Scheduler::admit_first() {
  const auto to_come = [&] { return std::find_if(waiting_.begin(), waiting_.end(), may_come); };
  if (to_come() == waiting_.end()) return false;
  make_room(**to_come());
  // Those who made room wait behind it.
  const auto first = to_come();
  const int slot = runner_.open_sequence();
  if (slot < 0) return false;
  (*first)->slot = slot;
  const Prefix prefix = find_prefix(**first);
  const int64_t missing = (*first)->answer->num_tokens() - prefix.tokens;
  const int64_t needed = tokens_to_enter(missing, promised_to(running_), running_.size());
  if (!running_.empty() && runner_.available_tokens() < needed) {
    runner_.close_sequence(slot);
    (*first)->slot = -1;
    refused_at_ = runner_.available_tokens();
    return false;
  }
  std::unique_ptr<Sequence> sequence = std::move(*first);
  waiting_.erase(first);
  enter(*sequence, prefix);
  insert(std::move(sequence), &running_);
  return true;
}

// Throws out answers of lower priority, the last first, where that gives the sequence a place and
// blocks; nobody where it would not. Who pools stays: it would have to begin again.
void Scheduler::make_room(const Sequence& sequence) {
  lower_.clear();
  lower_slots_.clear();
  for (size_t i = running_.size(); i-- > 0;) {
    if (priority_of(*running_[i]) >= priority_of(sequence)) break;
    if (running_[i]->answer->pools()) continue;
    lower_.push_back(i);
    lower_slots_.push_back(running_[i]->slot);
  }
  if (lower_.empty()) return;
  available_.resize(lower_.size() + 1);
  const int64_t prefix = runner_.foresee(newcomer(sequence), lower_slots_, available_);
  const int64_t missing = sequence.answer->num_tokens() - prefix;
  int64_t promised = promised_to(running_);
  for (size_t n = 0; n <= lower_.size(); ++n) {
    if (n > 0) promised -= promised_to(*running_[lower_[n - 1]]);
    const size_t left = running_.size() - n;
    const bool has_slot = left < static_cast<size_t>(runner_.options().max_sequences);
    const bool has_room = available_[n] >= tokens_to_enter(missing, promised, left);
    if (left > 0 && !(has_slot && has_room)) continue;
    for (size_t i = 0; i < n; ++i) preempt(lower_[i]);
    return;
  }
}

// Where the beginning of what the sequence has may be: with earlier requests or with the answer
// beside it.
KvCache::Newcomer Scheduler::newcomer(const Sequence& sequence) const {
  // Hidden states are not kept: these are computed from the beginning.
  if (sequence.answer->pools()) return {};
  KvCache::Newcomer newcomer = {.ids = sequence.answer->ids()};
  const Sequence* reader = sequence.group->reader;
  if (reader != nullptr && reader != &sequence && reader->slot >= 0) {
    newcomer.beside = reader->slot;
    // A reader that was preempted reads the prompt once more, and may not have got far.
    newcomer.common = std::min(reader->num_computed, sequence.answer->num_prompt_tokens() - 1);
  }
  return newcomer;
}

Scheduler::Prefix Scheduler::find_prefix(Sequence& sequence) {
  const KvCache::Newcomer from = newcomer(sequence);
  Prefix prefix;
  if (from.ids.empty()) return prefix;
  prefix.matched_tokens = runner_.matched_prefix(from.ids);
  prefix.tokens = runner_.adopt_prefix(sequence.slot, from.ids);
  if (prefix.tokens == 0 && from.beside >= 0) {
    prefix.tokens = runner_.share(from.beside, sequence.slot, from.common);
  }
  return prefix;
}

void Scheduler::enter(Sequence& sequence, const Prefix& prefix) {
  sequence.num_computed = prefix.tokens;
  sequence.planned_end = prefix.tokens;
  sequence.prompt_is_kept = prefix.tokens >= sequence.answer->num_prompt_tokens();
  set_next_border(sequence, prefix.matched_tokens);
  runner_.set_seen(sequence.slot, sequence.answer->ids());
  sequence.answer->start(prefix.tokens);
  SequenceGroup& group = *sequence.group;
  if (group.reader == nullptr && !group.prompt_is_read) group.reader = &sequence;
}

void Scheduler::preempt(size_t running_idx) {
  std::unique_ptr<Sequence> sequence = std::move(running_[running_idx]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(running_idx));
  keep_prefix(*sequence);
  runner_.close_sequence(sequence->slot);
  sequence->slot = -1;
  sequence->num_computed = 0;
  sequence->planned_end = 0;
  sequence->answer->restart();
  ++num_preemptions_;
  insert(std::move(sequence), &waiting_);
}

void Scheduler::preempt_all() {
  for (const auto& sequence : running_) sequence->paused = true;
  while (!running_.empty()) preempt(running_.size() - 1);
  refused_at_ = -1;
}

bool Scheduler::is_catching_up() const {
  return std::ranges::any_of(running_, [&](const auto& sequence) {
    return sequence->paused && priority_of(*sequence) == priority_of(*running_.front());
  });
}

void Scheduler::take_ended(std::vector<std::unique_ptr<Sequence>>* ended) {
  const auto take_from = [&](std::vector<std::unique_ptr<Sequence>>* queue) {
    for (auto& sequence : *queue) {
      if (!sequence->answer->ended()) continue;
      if (sequence->slot >= 0) {
        keep_prefix(*sequence);
        runner_.close_sequence(sequence->slot);
        sequence->slot = -1;
      }
      refused_at_ = -1;
      if (sequence->group->reader == sequence.get()) sequence->group->reader = nullptr;
      ended->push_back(std::move(sequence));
    }
    std::erase(*queue, nullptr);
  };
  take_from(&running_);
  take_from(&waiting_);
}

// --- rows ---

// In the order of service; whoever lacks a block takes those of the last in that order.
void Scheduler::plan_decoding(StepPlan* plan) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.is_decoding()) continue;
    bool has_room = false;
    while (i < running_.size() && !(has_room = runner_.reserve(sequence.slot, sequence.num_computed,
                                                               sequence.num_computed + 1))) {
      preempt(running_.size() - 1);  // perhaps the sequence itself
    }
    if (has_room) add_rows(sequence, sequence.num_computed + 1, plan);
  }
  plan->num_decoding = static_cast<int64_t>(plan->rows.size());
}

void Scheduler::plan_prompts(StepPlan* plan) {
  prompts_.clear();
  for (const auto& sequence : running_) {
    const bool reads = !sequence->is_decoding() && !sequence->answer->pools();
    if (reads) prompts_.push_back(sequence.get());
  }
  if (prompts_.empty()) return;
  int64_t left = budget_.prompt_tokens(plan->num_decoding);
  // Prompts of one priority take turns in being first; a higher one has what it wants.
  const auto begin = prompts_.begin();
  const int priority = (*begin)->answer->request().priority;
  const auto equals = std::find_if(begin, prompts_.end(), [&](const Sequence* sequence) {
    return sequence->answer->request().priority != priority;
  });
  const int64_t count = equals - begin;
  std::rotate(begin, begin + turn_++ % count, equals);
  const int64_t sharers = std::clamp<int64_t>(left / kLeastShareTokens, 1, count);
  const int64_t share = (left + sharers - 1) / sharers;
  for (auto it = begin; it != equals && left > 0; ++it) {
    left -= plan_prompt(**it, std::min(share, left), plan);
  }
  // What is left goes to those that had no share, and then to lower priorities.
  for (auto it = begin; it != prompts_.end() && left > 0; ++it) {
    if ((*it)->planned_end == (*it)->num_computed) left -= plan_prompt(**it, left, plan);
  }
  plan->num_prompt = static_cast<int64_t>(plan->rows.size()) - plan->num_decoding;
}

// Returns how many of its tokens go into the step.
int64_t Scheduler::plan_prompt(Sequence& sequence, int64_t tokens, StepPlan* plan) {
  // Thrown out for another prompt of this step.
  if (sequence.slot < 0) return 0;
  const int64_t begin = sequence.num_computed;
  int64_t end = std::min(begin + tokens, sequence.answer->num_tokens());
  if (sequence.next_border > begin) end = std::min(end, sequence.next_border);
  while (!runner_.reserve(sequence.slot, begin, end)) {
    // Only what is served later and is not in this step yet can be thrown out.
    const Sequence& last = *running_.back();
    const bool may_go = served_before(sequence, last) && last.planned_end == last.num_computed;
    if (!may_go) return 0;
    preempt(running_.size() - 1);
  }
  add_rows(sequence, end, plan);
  return end - begin;
}

void Scheduler::add_rows(Sequence& sequence, int64_t end, StepPlan* plan) {
  const std::span<const int32_t> ids = sequence.answer->ids();
  const bool draws = end == sequence.answer->num_tokens() && !sequence.answer->pools();
  const size_t begin = plan->rows.size();
  for (int64_t p = sequence.num_computed; p < end; ++p) {
    plan->rows.push_back({ids[static_cast<size_t>(p)], static_cast<int32_t>(p), sequence.slot});
  }
  sequence.planned_end = end;
  plan->pieces.push_back({&sequence, begin, plan->rows.size() - begin, draws});
}

// --- what is kept ---

void Scheduler::learn(const StepPlan& plan, double ms) {
  budget_.learn(plan.num_decoding, plan.num_prompt, ms);
}

void Scheduler::computed(Sequence& sequence) {
  sequence.num_computed = sequence.planned_end;
  const bool prompt_ends =
      !sequence.prompt_is_kept && sequence.num_computed >= sequence.answer->num_prompt_tokens();
  if (prompt_ends) {
    sequence.prompt_is_kept = true;
    sequence.group->prompt_is_read = true;
  }
  if (!prompt_ends && sequence.num_computed != sequence.next_border) return;
  keep_prefix(sequence);
  set_next_border(sequence, 0);
}

void Scheduler::keep_prefix(Sequence& sequence) {
  const auto computed = static_cast<size_t>(sequence.num_computed);
  runner_.keep_prefix(sequence.slot, sequence.answer->ids().first(computed));
  // Whoever waits may have less to compute now.
  refused_at_ = -1;
}

// The next place where the prefix is kept on the way: where it leaves the path of an earlier one
// (`matched_tokens`), which others may do as well, or after so many tokens.
void Scheduler::set_next_border(Sequence& sequence, int64_t matched_tokens) const {
  const int64_t begin = sequence.num_computed;
  const int64_t regular = (begin / kKeepEveryTokens + 1) * kKeepEveryTokens;
  sequence.next_border = border_below(matched_tokens);
  if (sequence.next_border <= begin || sequence.next_border > regular)
    sequence.next_border = regular;
}

}  // namespace markbase::runtime
