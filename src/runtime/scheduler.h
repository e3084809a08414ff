// Who steps next, and with which rows. Answers enter and leave between any two steps; every one of
// them that waits for its next token gets a row in each step, and prompts share what is left of the
// step's budget. Where blocks run out, the answer that came last gives its own back and waits; it
// is computed again later, to the same bits. No result depends on anything decided here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/answer.h"
#include "runtime/model_runner.h"
#include "runtime/step_budget.h"

namespace markbase::runtime {

struct Sequence;

// Room for so many elements; asked for one more again and again, it moves them seldom.
template <class T>
void reserve_for(size_t count, std::vector<T>* elements) {
  if (count > elements->capacity()) elements->reserve(std::max(count, 2 * elements->capacity()));
}

// Answers to one prompt.
struct SequenceGroup {
  Sequence* reader = nullptr;  // the one that reads the prompt for all; null when it has ended
  bool prompt_is_read = false;
};

// An answer with its place in the cache.
struct Sequence {
  std::unique_ptr<Answer> answer;
  std::shared_ptr<SequenceGroup> group;
  int64_t order = 0;         // of arrival
  int slot = -1;             // of the runner; -1: it waits
  int64_t num_computed = 0;  // positions whose keys and values are in the cache
  int64_t next_border = 0;   // where its prefix is kept on the way; 0: nowhere
  int64_t planned_end = 0;   // positions below are computed by the step planned; else num_computed
  bool prompt_is_kept = false;
  bool paused = false;  // thrown out by preempt_all(), and nothing was drawn since

  int64_t num_pending() const { return answer->num_tokens() - num_computed; }
  bool is_decoding() const { return num_pending() == 1 && !answer->pools(); }
};

// The rows of one step, and whose they are.
struct StepPlan {
  struct Piece {
    Sequence* sequence = nullptr;
    size_t begin = 0;  // its rows are rows[begin, begin + count)
    size_t count = 0;
    bool draws = false;  // a token is drawn after the last of them
  };
  std::vector<Piece> pieces;
  std::vector<StepRow> rows;  // of piece after piece
  int64_t num_decoding = 0;   // rows of sequences that only wait for their next token
  int64_t num_prompt = 0;     // the other rows

  void reserve(size_t rows_at_most, size_t sequences_at_most);
  void clear();
};

// Not thread safe. Allocates nothing while it plans, once it has seen as many answers as it has
// now.
class Scheduler {
 public:
  explicit Scheduler(ModelRunner& runner);

  // Strong guarantee: on an exception (no memory) none of them is taken in.
  void add(std::vector<std::unique_ptr<Sequence>> sequences);
  // Takes waiting answers in, as far as there is room, and fills the plan. It is empty where
  // nothing is under way but pooling answers.
  void plan_step(StepPlan* plan);
  // The next rows of a pooling answer, which have a step of their own beside the one of
  // `num_decoding` rows; empty where there is none.
  void plan_pooling(int64_t num_decoding, StepPlan* plan);
  // What a planned step took.
  void learn(const StepPlan& plan, double ms);
  // The planned rows of a sequence are computed: its prefix is kept where it should be.
  void computed(Sequence& sequence);
  // Takes out what has ended; blocks go back, and what is whole is kept for later prompts.
  void take_ended(std::vector<std::unique_ptr<Sequence>>* ended);
  // Everything waits, and the runner is free. It will go on to the same bits.
  void preempt_all();
  // Whether somebody who runs has drawn nothing since then, of the highest priority that runs: who
  // pauses again and again would have them compute the same for ever. Lower ones may have to wait
  // for ever as it is.
  bool is_catching_up() const;

  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  std::span<const std::unique_ptr<Sequence>> waiting() const { return waiting_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  int64_t num_preemptions() const { return num_preemptions_; }

 private:
  struct Prefix {
    int64_t tokens = 0;          // there already
    int64_t matched_tokens = 0;  // the path that it shares with earlier requests
  };

  void admit();
  bool admit_first();
  bool fits_no_better() const;
  KvCache::Newcomer newcomer(const Sequence& sequence) const;
  void make_room(const Sequence& sequence);
  Prefix find_prefix(Sequence& sequence);
  void enter(Sequence& sequence, const Prefix& prefix);
  void plan_decoding(StepPlan* plan);
  void plan_prompts(StepPlan* plan);
  int64_t plan_prompt(Sequence& sequence, int64_t tokens, StepPlan* plan);
  void add_rows(Sequence& sequence, int64_t end, StepPlan* plan);
  void preempt(size_t running_idx);
  void keep_prefix(Sequence& sequence);
  void set_next_border(Sequence& sequence, int64_t matched_tokens) const;

  ModelRunner& runner_;
  StepBudget budget_;
  // Both in the order in which they are served: by priority, then by arrival.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<std::unique_ptr<Sequence>> waiting_;
  std::vector<Sequence*> prompts_;  // those of a step that read their prompt
  // For make_room: who may be thrown out, by place in running_ and by slot, and the room then.
  std::vector<size_t> lower_;
  std::vector<int> lower_slots_;
  std::vector<int64_t> available_;
  // So many tokens were available when the first that waits did not fit; -1: it was not refused,
  // or another one may be the first now.
  int64_t refused_at_ = -1;
  int64_t turn_ = 0;  // which prompt is served first among equals
  int64_t num_preemptions_ = 0;
};

}  // namespace markbase::runtime
