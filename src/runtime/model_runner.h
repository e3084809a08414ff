// One model on one backend, stepping rows of any number of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "markbase/options.h"
#include "markbase/result.h"
#include "model/text_decoder.h"
#include "ops/backend.h"
#include "runtime/kv_cache.h"
#include "runtime/mapped_weights.h"
#include "runtime/memory_plan.h"

namespace markbase::runtime {

// A token of a step. Rows of one sequence stand together with ascending positions, at most
// prefill_chunk_tokens of them; the sequences stand in any order, each decoding, at its prompt, or
// both.
struct StepRow {
  int32_t id = 0;
  int32_t position = 0;
  int32_t sequence = 0;
};

// Logits (or a hidden state) of one output row, on the host, valid during the call.
using OnRow = base::FunctionRef<Result<void>(int64_t output_idx, std::span<const float> values)>;

// Where the draws of a step go: one entry of each list that is given an output row.
struct SampleOutputs {
  std::span<int32_t> ids;
  // Log probabilities that are asked for: of the chosen id and of so many (0 to kMostTopLogprobs)
  // of the likeliest; -1: none, the row's entry of `logprobs` stays as it is. Empty: none at all.
  std::span<const int32_t> num_top = {};
  std::span<TokenLogprobs> logprobs = {};
  // For tests: told of the logits that the draws start from, after the step. Null: nobody.
  const OnRow* on_logits = nullptr;
};

// Not thread safe: one step at a time. Config, weights and backend outlive it. After create, no
// step allocates anything (traces, host copies of logits and lists of logprobs apart).
class ModelRunner {
 public:
  static uint64_t kv_bytes(const model::TextConfig& config, const ops::Backend& backend,
                           const RunnerOptions& options);
  static uint64_t scratch_bytes(const model::TextConfig& config, const ops::Backend& backend,
                                const RunnerOptions& options);
  // `suppressed`: ids that are never sampled. `mapped_weights`: the files that hold some, if
  // there are any. Errors: kOutOfMemory.
  static Result<std::unique_ptr<ModelRunner>> create(const model::TextConfig& config,
                                                     const model::TextWeights& weights,
                                                     ops::Backend& backend,
                                                     const RunnerOptions& options,
                                                     std::span<const int32_t> suppressed,
                                                     const MappedWeights& mapped_weights = {});

  const RunnerOptions& options() const { return options_; }
  // A fresh sequence, or -1 when max_sequences are open.
  int open_sequence();
  void close_sequence(int sequence);
  // The ids that the repetition penalty knows of, before the first sample of a sequence.
  void set_seen(int sequence, std::span<const int32_t> ids);

  // Blocks for rows to come, and prefixes: as KvCache says. A step reserves what was not reserved
  // before it, which must succeed then.
  bool reserve(int sequence, int64_t begin, int64_t end);
  int64_t adopt_prefix(int sequence, std::span<const int32_t> ids);
  void keep_prefix(int sequence, std::span<const int32_t> ids);
  int64_t share(int from, int to, int64_t end);
  void drop_prefixes();
  KvCache::Usage usage() const;
  double share_of_pool(int64_t tokens) const;
  int64_t matched_prefix(std::span<const int32_t> ids) const;
  int64_t available_tokens() const;
  int64_t foresee(const KvCache::Newcomer& newcomer, std::span<const int> closing,
                  std::span<int64_t> available);
  Result<int64_t> save_prefixes(const std::string& path, uint64_t model) const;
  Result<int64_t> restore_prefixes(const std::string& path, uint64_t model);

  // Runs the layers over `rows` (at most prefill_chunk_tokens + max_sequences), which fills the
  // cache. Errors: kFailed where a key or value does not fit the cache type, naming the layer;
  // kBadInput where a file with mapped weights was truncated.
  Result<void> run(std::span<const StepRow> rows);
  // The same, then logits of the rows named by output_rows (indices into rows), then one draw for
  // each: ids[i] belongs to output_rows[i] at the position after its row. One output a sequence at
  // most.
  Result<void> run_and_sample(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                              std::span<const ops::SamplingParams> params, std::span<int32_t> ids) {
    return run_and_sample(rows, output_rows, params, SampleOutputs{.ids = ids});
  }
  // The same, with log probabilities of the model's own distribution where they are asked for: they
  // do not depend on params. Host memory is allocated for the lists of these alone.
  Result<void> run_and_sample(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                              std::span<const ops::SamplingParams> params,
                              const SampleOutputs& outputs);
  // The same, then the logits of output_rows, one after the other.
  Result<void> run_for_logits(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                              model::TraceSink* trace, OnRow on_row);
  // The same, then the final normed hidden states [hidden_size] of output_rows, one after the
  // other: what the logits are the head's product with.
  Result<void> run_for_hidden(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                              OnRow on_row);

 private:
  ModelRunner(const model::TextConfig& config, const model::TextWeights& weights,
              ops::Backend& backend, const RunnerOptions& options,
              const MappedWeights& mapped_weights);
  // Backend memory beside the activations; with a counting arena this plans.
  struct Device {
    tensor::TensorView ids;                 // [T] i32
    tensor::TensorView per_layer_ids;       // [T] i32
    tensor::TensorView positions;           // [T] i32
    tensor::TensorView sequences;           // [T] i32
    tensor::TensorView output_rows;         // [T] i32
    tensor::TensorView output_positions;    // [T] i32
    tensor::TensorView output_sequences;    // [T] i32
    tensor::TensorView row_numbers;         // [T] i32: 0, 1, 2, ...
    tensor::TensorView overflow;            // [layers] i32
    tensor::TensorView sample_positions;    // [S] i32
    tensor::TensorView sampled;             // [S] i32
    tensor::TensorView seen;                // [S, vocab / 32] u32
    tensor::TensorView suppressed;          // [n] i32
    ops::SamplingParams* params = nullptr;  // [S]
    void* sample_scratch = nullptr;
    tensor::TensorView
        raw_logits;              // [S, vocab] f32, a copy, where draws overwrite what is asked for
    tensor::TensorView num_top;  // [S] i32
    tensor::TensorView chosen_logprob;  // [S] f32
    tensor::TensorView top_ids;         // [S, kMostTopLogprobs] i32
    tensor::TensorView top_logprobs;    // [S, kMostTopLogprobs] f32
  };
  static Device carve(const model::TextConfig& config, const RunnerOptions& options,
                      size_t num_suppressed, tensor::Device device, base::Arena& arena);
  Result<void> allocate(std::span<const int32_t> suppressed);
  void reserve_rows(std::span<const StepRow> rows);
  void upload_rows(std::span<const StepRow> rows, std::span<const int32_t> output_rows);
  void upload_per_layer_ids(std::span<const StepRow> rows);
  // Chooses what a step runs: only its output rows where that is enough.
  void begin_step(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                  bool show_all_rows);
  tensor::TensorView head_rows(int64_t begin, int64_t count) const;
  Result<void> end_step();
  Result<void> check_overflow();
  void sample(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
              const tensor::TensorView& logits);
  Result<void> show_outputs(
      int64_t count, OnRow on_row,
      base::FunctionRef<tensor::TensorView(const tensor::TensorView&)> compute);
  Result<void> show_rows(const tensor::TensorView& values, int64_t first_output, OnRow on_row);
  void token_logprobs(int64_t count);
  Result<void> download_logprobs(const SampleOutputs& outputs);

  const model::TextConfig& config_;
  ops::Backend& backend_;
  RunnerOptions options_;
  MappedWeights mapped_weights_;
  model::TextDecoder decoder_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<ops::DeviceBuffer> memory_;
  Device device_;
  // Host side of a step's arguments, sized once.
  std::vector<int32_t> ids_, per_layer_ids_, positions_, sequences_, sample_positions_, overflow_;
  std::vector<int32_t> output_positions_, output_sequences_;
  model::StepInputs step_;
  model::StepOutputs step_outputs_;
  std::vector<uint32_t> seen_;
  std::vector<float> row_;
  std::vector<int32_t> top_ids_;
  std::vector<float> chosen_logprob_, top_logprobs_;
};

}  // namespace markbase::runtime
