// Random schedules: what a server may ask of a shared batch, without a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace markbase::testing {

struct ScheduleLimits {
  int64_t max_sequences = 1;
  int64_t chunk_tokens = 1;  // rows of one sequence in a step; a step has max_sequences more
  int64_t context_tokens = 1;
  int64_t window = 1;  // of the sliding layers: lengths near it come often
  int64_t vocab_size = 1;
};

// The next rows of a request.
struct SchedulePiece {
  int request = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// First some requests leave, finished or not, then some enter, then the pieces run as one step, in
// the order in which they stand here.
struct ScheduleStep {
  std::vector<int> leaves;
  std::vector<int> enters;
  std::vector<SchedulePiece> pieces;
  // Rows of the step whose logits are asked for: none, some or all, in any order.
  std::vector<int32_t> outputs;
};

struct Schedule {
  uint64_t seed = 0;
  ScheduleLimits limits;
  std::vector<std::vector<int32_t>> ids;  // of each request, all of which are known beforehand
  std::vector<ScheduleStep> steps;

  int64_t largest_batch() const;  // sequences in a step
  // Lines for people: who leaves and enters, "request[begin,end)" in the order of the rows, and the
  // rows that are asked for.
  std::string text() const;
};

// Half as many requests again as there is room for. Some lengths: one, the window, one less, one
// more, and the whole context. Decoding rows (one of a request) and pieces of prefill mix; in about
// half of the steps every open request has its part, in the first one as many as there is room for.
Schedule random_schedule(uint64_t seed, const ScheduleLimits& limits);

}  // namespace markbase::testing
