// Random traffic: requests that arrive, share prefixes, are cancelled, and what each of them gets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "markbase/engine.h"
#include "runtime/batch.h"

namespace markbase::testing {

struct TrafficLimits {
  int64_t num_requests = 300;
  int64_t most_prompt_tokens = 1500;
  int64_t most_new_tokens = 24;
  int64_t vocab_size = 0;
};

// One request, when it comes, and when its user goes.
struct TrafficItem {
  Request request;
  int64_t arrives_at = 0;     // step
  int64_t cancel_after = -1;  // tokens of all its answers; 0: before it begins; -1: never
};

// The same for the same seed. Prompts begin with a part of one of a few texts; most are short, some
// as long as they may be. Sampling differs from one to the next.
std::vector<TrafficItem> random_traffic(uint64_t seed, const TrafficLimits& limits);

// Hashes of the logits that a request's tokens are drawn from: by answer and number of ids before.
using LogitsHashes = std::map<std::pair<size_t, int64_t>, uint64_t>;

struct TrafficResult {
  bool ok = false;
  std::string error;
  std::vector<Completion> completions;
  LogitsHashes logits;
};

// Drives a batch on this thread: items enter at their step.
std::vector<TrafficResult> run_traffic(runtime::Batch& batch,
                                       const std::vector<TrafficItem>& items);

// "" where `shared` is what `alone` is: the same ids and the same logits for every answer that
// ended by itself, the beginning of them for one that was cancelled.
std::string difference(const TrafficItem& item, const TrafficResult& shared,
                       const TrafficResult& alone);

}  // namespace markbase::testing
