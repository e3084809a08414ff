// What a model will need, and what the machine has.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "markbase/options.h"
#include "markbase/result.h"
#include "model/config.h"
#include "model/weight_map.h"
#include "ops/backend.h"

namespace markbase::runtime {

struct MachineMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // what can be taken without swapping, cgroup limits regarded
  std::string limited_by;        // "free memory" or "the memory limit of this container"
};
MachineMemory machine_memory();

struct RunnerOptions {
  ops::KvType kv = ops::KvType::kF16;
  int64_t context_tokens = 0;  // of each sequence
  int64_t prefill_chunk_tokens = 512;
  int64_t max_sequences = 1;
  int64_t max_output_rows = 1;  // rows of logits at a time, at least max_sequences
  // Tokens that the blocks of full layers hold, all sequences and the prefix cache together; 0:
  // every sequence may fill its context.
  int64_t kv_pool_tokens = 0;
  // Windows of sliding layers that the prefix cache may hold beside those of the sequences.
  int64_t kept_windows = 0;
  // Freed blocks are overwritten with NaN: for tests.
  bool fill_freed_blocks = false;
  // Every row goes through every layer, wanted or not. The results are the same: for comparison.
  bool run_all_rows = false;
};

struct MemoryPlan {
  uint64_t weight_bytes = 0;
  // Packed weights that are read from a mapped file. They are pages of the file and no memory of
  // our own, but each token reads them: they must fit as well.
  uint64_t mapped_weight_bytes = 0;
  // A table that is looked up in its file, a few rows at a time: it need not fit.
  uint64_t table_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;
  uint64_t probe_bytes = 0;  // what a measurement holds beside the model
  int64_t context_tokens = 0;
  int64_t max_sequences = 1;
  int64_t pool_tokens = 0;  // of all sequences together
  uint64_t budget_bytes = 0;
  std::string budget_source;

  // Memory of our own.
  uint64_t total_bytes() const { return weight_bytes + kv_bytes + scratch_bytes + probe_bytes; }
  bool fits() const { return total_bytes() + mapped_weight_bytes <= budget_bytes; }
};
// The same plan where the weights that a backend packs are mapped instead.
MemoryPlan with_mapped_weights(MemoryPlan plan, const model::WeightMap& map,
                               const ops::Backend& backend);

MemoryPlan plan_memory(const model::TextConfig& config, const model::WeightMap& map,
                       const ops::Backend& backend, const RunnerOptions& runner,
                       uint64_t memory_bytes);
// The longest context that may be had: what was asked for, else the model's limit. Errors: kUsage
// for one beyond the model's limit.
Result<int64_t> context_limit(const model::TextConfig& config, const EngineOptions& options);
// Tokens for the blocks of full layers where every sequence has a context of so many: one context,
// and as much more for each further sequence as answers usually need. A history that a sequence
// goes on from shares its blocks with it.
int64_t pool_tokens(int64_t context_tokens, int64_t max_sequences);
// Chooses the context: what was asked for, else the model's limit. While it does not fit, first the
// kept windows and the pool beyond one context go, then the context is halved. Errors: kUsage for a
// context beyond the model's limit, kOutOfMemory with the plan.
Result<MemoryPlan> choose_context(const model::TextConfig& config, const model::WeightMap& map,
                                  const ops::Backend& backend, const EngineOptions& options,
                                  RunnerOptions* runner);

// One line for people: "weights 241.3 MiB + KV cache ... = ... of ... (free memory)", with "and ...
// mapped" after the sum where weights are mapped.
std::string plan_text(const MemoryPlan& plan);
base::Json plan_json(const MemoryPlan& plan);
std::string bytes_text(uint64_t bytes);

}  // namespace markbase::runtime
