#include "support/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/random.h"

namespace markbase::testing {
namespace {

class Maker {
 public:
  Maker(uint64_t seed, const ScheduleLimits& limits) : limits_(limits), random_(seed) {
    schedule_.seed = seed;
    schedule_.limits = limits;
  }

  Schedule make() {
    const int64_t requests = limits_.max_sequences + limits_.max_sequences / 2 + 1;
    for (int64_t i = 0; i < requests; ++i) add_request(i);
    done_.assign(schedule_.ids.size(), 0);
    while (entered_ < schedule_.ids.size() || !open_.empty()) add_step();
    return std::move(schedule_);
  }

 private:
  bool one_in(int64_t n) { return random_.below(n) == 0; }

  void add_request(int64_t idx) {
    const int64_t window = limits_.window;
    const int64_t lengths[] = {1, std::max<int64_t>(window - 1, 1), window, window + 1};
    const int64_t kind = random_.below(8);
    int64_t length = kind < 4 ? lengths[kind] : 1 + random_.below(3 * window);
    if (idx % 16 == 1) length = limits_.context_tokens - random_.below(8);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < std::min(length, limits_.context_tokens); ++i) {
      ids.push_back(static_cast<int32_t>(random_.below(limits_.vocab_size)));
    }
    schedule_.ids.push_back(std::move(ids));
  }

  int64_t left(int request) const {
    const auto idx = static_cast<size_t>(request);
    return static_cast<int64_t>(schedule_.ids[idx].size()) - done_[idx];
  }

  void add_step() {
    ScheduleStep step;
    std::erase_if(open_, [&](int request) {
      const bool leaves = left(request) == 0 || one_in(50);
      if (leaves) step.leaves.push_back(request);
      return leaves;
    });
    const bool first = schedule_.steps.empty();
    while (entered_ < schedule_.ids.size() &&
           static_cast<int64_t>(open_.size()) < limits_.max_sequences &&
           (first || open_.empty() || !one_in(4))) {
      open_.push_back(static_cast<int>(entered_));
      step.enters.push_back(static_cast<int>(entered_++));
    }
    if (!open_.empty()) add_pieces(&step, first || one_in(2));
    schedule_.steps.push_back(std::move(step));
  }

  void add_pieces(ScheduleStep* step, bool everyone) {
    for (size_t i = open_.size(); i-- > 1;) {
      std::swap(open_[i], open_[static_cast<size_t>(random_.below(static_cast<int64_t>(i) + 1))]);
    }
    // Every sequence finds room for a row behind those before it.
    int64_t spare = limits_.chunk_tokens;
    int64_t rows = 0;
    for (const int request : open_) {
      const bool last_chance = request == open_.back() && step->pieces.empty();
      if (!everyone && !last_chance && one_in(2)) continue;
      int64_t count = 1;
      const int64_t most = std::min({left(request), limits_.chunk_tokens, 1 + spare});
      if (one_in(2)) count = 1 + random_.below(most);
      spare -= count - 1;
      rows += count;
      int64_t& done = done_[static_cast<size_t>(request)];
      step->pieces.push_back({request, done, count});
      done += count;
    }
    add_outputs(step, rows);
  }

  void add_outputs(ScheduleStep* step, int64_t rows) {
    const int64_t wanted = random_.below(5);  // none; the last of each; all; else some
    int32_t row = 0;
    for (const SchedulePiece& piece : step->pieces) {
      for (int64_t i = 0; i < piece.count; ++i, ++row) {
        const bool last = i + 1 == piece.count;
        const bool wants = wanted == 1 ? last : wanted == 2 || (wanted > 2 && one_in(2));
        if (wants) step->outputs.push_back(row);
      }
    }
    if (wanted != 4 || rows < 2) return;
    for (size_t i = step->outputs.size(); i-- > 1;) {
      const auto j = static_cast<size_t>(random_.below(static_cast<int64_t>(i) + 1));
      std::swap(step->outputs[i], step->outputs[j]);
    }
  }

  ScheduleLimits limits_;
  Random random_;
  Schedule schedule_;
  std::vector<int64_t> done_;  // rows of each request so far
  std::vector<int> open_;
  size_t entered_ = 0;
};

}  // namespace

int64_t Schedule::largest_batch() const {
  size_t most = 0;
  for (const ScheduleStep& step : steps) most = std::max(most, step.pieces.size());
  return static_cast<int64_t>(most);
}

std::string Schedule::text() const {
  std::string out = fmt::format("seed {}: {} sequences, chunks of {}, context {}\n", seed,
                                limits.max_sequences, limits.chunk_tokens, limits.context_tokens);
  for (size_t i = 0; i < steps.size(); ++i) {
    out += fmt::format("step {}: leave [{}] enter [{}] rows", i, fmt::join(steps[i].leaves, " "),
                       fmt::join(steps[i].enters, " "));
    for (const SchedulePiece& piece : steps[i].pieces) {
      out += fmt::format(" {}[{},{})", piece.request, piece.begin, piece.begin + piece.count);
    }
    out += fmt::format(" outputs [{}]\n", fmt::join(steps[i].outputs, " "));
  }
  return out;
}

Schedule random_schedule(uint64_t seed, const ScheduleLimits& limits) {
  return Maker(seed, limits).make();
}

}  // namespace markbase::testing
