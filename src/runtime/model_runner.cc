#include "runtime/model_runner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace markbase::runtime {
namespace {

using tensor::DType;
using tensor::TensorView;

// Rows that one step can hold: a chunk of prefill beside one decoding row of every sequence.
int64_t max_rows(const RunnerOptions& options) {
  return options.prefill_chunk_tokens + options.max_sequences;
}

int64_t seen_words(const model::TextConfig& config) { return (config.vocab_size + 31) / 32; }

model::DecoderCapacity decoder_capacity(const RunnerOptions& options) {
  return {.max_rows = max_rows(options),
          .max_output_rows = std::max(options.max_output_rows, options.max_sequences)};
}

ops::StepCapacity step_capacity(const model::TextConfig& config, const RunnerOptions& options) {
  ops::StepCapacity capacity;
  capacity.max_rows = max_rows(options);
  capacity.max_heads = config.num_attention_heads;
  capacity.max_head_dim = config.max_head_dim();
  capacity.max_linear_cols = std::max({config.hidden_size, config.max_intermediate_size(),
                                       config.num_attention_heads * config.max_head_dim(),
                                       config.hidden_size_per_layer_input});
  capacity.max_context = options.context_tokens;
  if (config.num_experts == 0) return capacity;
  capacity.num_experts = config.num_experts;
  capacity.top_k_experts = config.top_k_experts;
  capacity.expert_inputs = config.hidden_size;
  capacity.expert_width = config.moe_intermediate_size;
  return capacity;
}

template <class T>
void upload(ops::Backend& backend, void* device, std::span<const T> host) {
  if (!host.empty()) backend.upload(device, std::as_bytes(host));
}

Error broken_logits(int32_t position) {
  return base::failed("position {}: the logits hold a NaN: the model or its weights are broken",
                      position);
}

}  // namespace

ModelRunner::ModelRunner(const model::TextConfig& config, const model::TextWeights& weights,
                         ops::Backend& backend, const RunnerOptions& options,
                         const MappedWeights& mapped_weights)
    : config_(config),
      backend_(backend),
      options_(options),
      mapped_weights_(mapped_weights),
      decoder_(config, weights, backend) {}

uint64_t ModelRunner::kv_bytes(const model::TextConfig& config, const ops::Backend& backend,
                               const RunnerOptions& options) {
  return KvCache::bytes(config, backend, options);
}

uint64_t ModelRunner::scratch_bytes(const model::TextConfig& config, const ops::Backend& backend,
                                    const RunnerOptions& options) {
  base::Arena counter;
  carve(config, options, 0, tensor::Device::kHost, counter);
  return counter.used_bytes() +
         model::TextDecoder::activation_bytes(config, decoder_capacity(options)) +
         backend.plan_bytes(step_capacity(config, options));
}

ModelRunner::Device ModelRunner::carve(const model::TextConfig& config,
                                       const RunnerOptions& options, size_t num_suppressed,
                                       tensor::Device device, base::Arena& arena) {
  const auto ints = [&](int64_t n) {
    return tensor::make_view(arena.take_array<int32_t>(static_cast<size_t>(n)), DType::kI32, {n},
                             device);
  };
  const int64_t rows = max_rows(options);
  const int64_t sequences = options.max_sequences;
  Device d;
  d.ids = ints(rows);
  d.positions = ints(rows);
  d.sequences = ints(rows);
  d.per_layer_ids = ints(config.hidden_size_per_layer_input > 0 ? rows : 0);
  d.output_rows = ints(rows);
  d.output_positions = ints(rows);
  d.output_sequences = ints(rows);
  d.row_numbers = ints(rows);
  d.overflow = ints(config.num_hidden_layers);
  d.sample_positions = ints(sequences);
  d.sampled = ints(sequences);
  const int64_t words = seen_words(config);
  d.seen = tensor::make_view(arena.take_array<uint32_t>(static_cast<size_t>(sequences * words)),
                             DType::kU32, {sequences, words}, device);
  if (num_suppressed > 0) d.suppressed = ints(static_cast<int64_t>(num_suppressed));
  d.params = arena.take_array<ops::SamplingParams>(static_cast<size_t>(sequences));
  d.sample_scratch = arena.take(ops::sample_scratch_bytes(sequences, config.vocab_size));
  const auto floats = [&](int64_t n, int64_t width) {
    return tensor::make_view(arena.take_array<float>(static_cast<size_t>(n * width)), DType::kF32,
                             {n, width}, device);
  };
  d.raw_logits = floats(sequences, config.vocab_size);
  d.num_top = ints(sequences);
  d.chosen_logprob = floats(sequences, 1).reshaped({sequences});
  d.top_ids = ints(sequences * kMostTopLogprobs).reshaped({sequences, kMostTopLogprobs});
  d.top_logprobs = floats(sequences, kMostTopLogprobs);
  return d;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const model::TextConfig& config,
                                                         const model::TextWeights& weights,
                                                         ops::Backend& backend,
                                                         const RunnerOptions& options,
                                                         std::span<const int32_t> suppressed,
                                                         const MappedWeights& mapped_weights) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(config, weights, backend, options, mapped_weights));
  MB_TRY(runner->allocate(suppressed));
  return runner;
}

Result<void> ModelRunner::allocate(std::span<const int32_t> suppressed) {
  MB_TRY(backend_.plan(step_capacity(config_, options_)));
  MB_TRY(decoder_.plan(decoder_capacity(options_)));
  MB_ASSIGN(cache_, KvCache::create(config_, backend_, options_));
  base::Arena counter;
  carve(config_, options_, suppressed.size(), backend_.device(), counter);
  MB_ASSIGN(memory_, backend_.allocate(counter.used_bytes()));
  base::Arena arena({static_cast<std::byte*>(memory_->data()), memory_->size_bytes()});
  device_ = carve(config_, options_, suppressed.size(), backend_.device(), arena);
  upload(backend_, device_.suppressed.data, suppressed);
  const auto rows = static_cast<size_t>(max_rows(options_));
  ids_.resize(rows);
  positions_.resize(rows);
  sequences_.resize(rows);
  output_positions_.resize(rows);
  output_sequences_.resize(rows);
  per_layer_ids_.resize(static_cast<size_t>(device_.per_layer_ids.dim(0)));
  std::iota(ids_.begin(), ids_.end(), 0);
  upload<int32_t>(backend_, device_.row_numbers.data, ids_);
  sample_positions_.resize(static_cast<size_t>(options_.max_sequences));
  overflow_.resize(static_cast<size_t>(config_.num_hidden_layers));
  seen_.resize(static_cast<size_t>(seen_words(config_)));
  row_.resize(static_cast<size_t>(std::max(config_.vocab_size, config_.hidden_size)));
  chosen_logprob_.resize(static_cast<size_t>(options_.max_sequences));
  top_ids_.resize(static_cast<size_t>(device_.top_ids.num_elements()));
  top_logprobs_.resize(static_cast<size_t>(device_.top_logprobs.num_elements()));
  return {};
}

int ModelRunner::open_sequence() {
  const int sequence = cache_->open_sequence();
  if (sequence >= 0) set_seen(sequence, {});
  return sequence;
}

void ModelRunner::close_sequence(int sequence) { cache_->close_sequence(sequence); }

void ModelRunner::set_seen(int sequence, std::span<const int32_t> ids) {
  std::fill(seen_.begin(), seen_.end(), 0U);
  for (const int32_t id : ids) seen_[static_cast<size_t>(id / 32)] |= 1U << (id % 32);
  upload<uint32_t>(backend_, device_.seen.slice(sequence, 1).data, seen_);
}

bool ModelRunner::reserve(int sequence, int64_t begin, int64_t end) {
  return cache_->reserve(sequence, begin, end);
}
int64_t ModelRunner::adopt_prefix(int sequence, std::span<const int32_t> ids) {
  return cache_->adopt_prefix(sequence, ids);
}
void ModelRunner::keep_prefix(int sequence, std::span<const int32_t> ids) {
  cache_->keep_prefix(sequence, ids);
}
int64_t ModelRunner::share(int from, int to, int64_t end) { return cache_->share(from, to, end); }
void ModelRunner::drop_prefixes() { cache_->drop_prefixes(); }
KvCache::Usage ModelRunner::usage() const { return cache_->usage(); }
int64_t ModelRunner::matched_prefix(std::span<const int32_t> ids) const {
  return cache_->matched_prefix(ids);
}

int64_t ModelRunner::available_tokens() const { return cache_->available_tokens(); }
int64_t ModelRunner::foresee(const KvCache::Newcomer& newcomer, std::span<const int> closing,
                             std::span<int64_t> available) {
  return cache_->foresee(newcomer, closing, available);
}

double ModelRunner::share_of_pool(int64_t tokens) const { return cache_->share_of_pool(tokens); }
Result<int64_t> ModelRunner::save_prefixes(const std::string& path, uint64_t model) const {
  return cache_->save_prefixes(path, model);
}
Result<int64_t> ModelRunner::restore_prefixes(const std::string& path, uint64_t model) {
  return cache_->restore_prefixes(path, model);
}

// Sequence by sequence: blocks are given back and taken for all of its rows at once.
void ModelRunner::reserve_rows(std::span<const StepRow> rows) {
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].sequence == rows[begin].sequence) ++end;
    MB_CHECK_MSG(cache_->reserve(rows[begin].sequence, rows[begin].position,
                                 int64_t{rows[end - 1].position} + 1),
                 "too few blocks: the caller reserves them where they may not be enough");
  }
}

void ModelRunner::upload_rows(std::span<const StepRow> rows, std::span<const int32_t> output_rows) {
  MB_CHECK(!rows.empty() && static_cast<int64_t>(rows.size()) <= max_rows(options_));
  reserve_rows(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    ids_[i] = rows[i].id;
    positions_[i] = rows[i].position;
    sequences_[i] = rows[i].sequence;
  }
  upload_per_layer_ids(rows);
  for (size_t i = 0; i < output_rows.size(); ++i) {
    const StepRow& row = rows[static_cast<size_t>(output_rows[i])];
    output_positions_[i] = row.position;
    output_sequences_[i] = row.sequence;
  }
  cache_->upload_tables();
  upload<int32_t>(backend_, device_.ids.data, std::span(ids_).first(rows.size()));
  upload<int32_t>(backend_, device_.positions.data, std::span(positions_).first(rows.size()));
  upload<int32_t>(backend_, device_.sequences.data, std::span(sequences_).first(rows.size()));
  const size_t outputs = output_rows.size();
  upload<int32_t>(backend_, device_.output_rows.data, output_rows);
  upload<int32_t>(backend_, device_.output_positions.data,
                  std::span(output_positions_).first(outputs));
  upload<int32_t>(backend_, device_.output_sequences.data,
                  std::span(output_sequences_).first(outputs));
}

// The table's rows are asked for first of all, so that they come while the step is prepared. Ids
// beyond the table have no embedding there: they take row 0, the padding token's.
void ModelRunner::upload_per_layer_ids(std::span<const StepRow> rows) {
  if (per_layer_ids_.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    per_layer_ids_[i] = rows[i].id < config_.vocab_size_per_layer_input ? rows[i].id : 0;
  }
  const auto ids = std::span<const int32_t>(per_layer_ids_).first(rows.size());
  mapped_weights_.prefetch(ids);
  upload(backend_, device_.per_layer_ids.data, ids);
}

void ModelRunner::begin_step(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                             bool show_all_rows) {
  upload_rows(rows, output_rows);
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto num_outputs = static_cast<int64_t>(output_rows.size());
  step_ = {.ids = device_.ids.first(num_rows),
           .per_layer_ids =
               per_layer_ids_.empty() ? TensorView{} : device_.per_layer_ids.first(num_rows),
           .positions = device_.positions.first(num_rows),
           .sequences = device_.sequences.first(num_rows),
           .kv = cache_->views(),
           .row_numbers = device_.row_numbers.first(num_rows),
           .overflow = device_.overflow,
           .outputs = nullptr};
  const bool ascending = std::adjacent_find(output_rows.begin(), output_rows.end(),
                                            std::greater_equal()) == output_rows.end();
  const bool some_rows = num_outputs < num_rows && ascending;
  if (show_all_rows || options_.run_all_rows || !some_rows) return;
  step_outputs_ = {.rows = device_.output_rows.first(num_outputs),
                   .positions = device_.output_positions.first(num_outputs),
                   .sequences = device_.output_sequences.first(num_outputs)};
  step_.outputs = &step_outputs_;
}

// Where the output rows [begin, begin + count) stand after the layers.
TensorView ModelRunner::head_rows(int64_t begin, int64_t count) const {
  const bool alone = step_.outputs != nullptr;
  return (alone ? device_.row_numbers : device_.output_rows).slice(begin, count);
}

Result<void> ModelRunner::end_step() {
  MB_TRY(mapped_weights_.check_intact());
  return check_overflow();
}

Result<void> ModelRunner::check_overflow() {
  backend_.synchronize();
  backend_.download(std::as_writable_bytes(std::span(overflow_)), device_.overflow.data);
  const auto found =
      std::find_if(overflow_.begin(), overflow_.end(), [](int32_t flag) { return flag != 0; });
  if (found == overflow_.end()) return {};
  const auto layer = found - overflow_.begin();
  std::fill(overflow_.begin(), overflow_.end(), 0);
  upload<int32_t>(backend_, device_.overflow.data, overflow_);
  if (options_.kv == ops::KvType::kF16) {
    return base::failed(
        "layer {}: a key or value does not fit the F16 cache (beyond 65504, or not finite); try "
        "--kv bf16",
        layer);
  }
  return base::failed("layer {}: a key or value is not finite (NaN or infinite)", layer);
}

Result<void> ModelRunner::run(std::span<const StepRow> rows) {
  begin_step(rows, {}, /*show_all_rows=*/false);
  backend_.step([&] { decoder_.run_layers(step_); });
  return end_step();
}

Result<void> ModelRunner::run_and_sample(std::span<const StepRow> rows,
                                         std::span<const int32_t> output_rows,
                                         std::span<const ops::SamplingParams> params,
                                         const SampleOutputs& outputs) {
  const auto count = static_cast<int64_t>(output_rows.size());
  const std::span<int32_t> ids = outputs.ids;
  MB_CHECK(count > 0 && count <= options_.max_sequences && params.size() == output_rows.size() &&
           ids.size() == output_rows.size());
  MB_CHECK(outputs.logprobs.size() == outputs.num_top.size() &&
           (outputs.num_top.empty() || outputs.num_top.size() == output_rows.size()));
  const bool any_logprobs = std::any_of(outputs.num_top.begin(), outputs.num_top.end(),
                                        [](int32_t num_top) { return num_top >= 0; });
  const bool keep_logits = any_logprobs || outputs.on_logits != nullptr;
  begin_step(rows, output_rows, /*show_all_rows=*/false);
  for (size_t i = 0; i < output_rows.size(); ++i) {
    sample_positions_[i] = rows[static_cast<size_t>(output_rows[i])].position + 1;
  }
  upload<int32_t>(backend_, device_.sample_positions.data,
                  std::span(sample_positions_).first(output_rows.size()));
  upload(backend_, device_.params, params);
  if (any_logprobs) upload(backend_, device_.num_top.data, outputs.num_top);
  backend_.step([&] {
    decoder_.run_layers(step_);
    const TensorView logits = decoder_.run_head(head_rows(0, count));
    if (keep_logits) {
      backend_.gather_rows({.x = logits,
                            .rows = device_.row_numbers.first(count),
                            .y = device_.raw_logits.first(count)});
    }
    sample(rows, output_rows, logits);
    if (any_logprobs) token_logprobs(count);
  });
  MB_TRY(end_step());
  backend_.download(std::as_writable_bytes(ids), device_.sampled.data);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) return broken_logits(sample_positions_[i]);
  }
  if (any_logprobs) MB_TRY(download_logprobs(outputs));
  if (outputs.on_logits == nullptr) return {};
  return show_rows(device_.raw_logits.first(count), 0, *outputs.on_logits);
}

void ModelRunner::token_logprobs(int64_t count) {
  backend_.token_logprobs({.logits = device_.raw_logits.first(count),
                           .ids = device_.sampled.first(count),
                           .num_top = device_.num_top.first(count),
                           .chosen_logprob = device_.chosen_logprob.first(count),
                           .top_ids = device_.top_ids.first(count),
                           .top_logprobs = device_.top_logprobs.first(count)});
}

Result<void> ModelRunner::download_logprobs(const SampleOutputs& outputs) {
  const size_t count = outputs.num_top.size();
  const auto download = [&](auto& host, const TensorView& device, size_t width) {
    backend_.download(std::as_writable_bytes(std::span(host).first(count * width)), device.data);
  };
  download(chosen_logprob_, device_.chosen_logprob, 1);
  download(top_ids_, device_.top_ids, kMostTopLogprobs);
  download(top_logprobs_, device_.top_logprobs, kMostTopLogprobs);
  for (size_t i = 0; i < count; ++i) {
    if (outputs.num_top[i] < 0) continue;
    TokenLogprobs& row = outputs.logprobs[i];
    row.chosen = {outputs.ids[i], chosen_logprob_[i]};
    if (std::isnan(row.chosen.logprob)) return broken_logits(sample_positions_[i]);
    // A vocabulary may be smaller than what was asked for.
    const auto num_top =
        std::min(static_cast<size_t>(outputs.num_top[i]), static_cast<size_t>(config_.vocab_size));
    row.top.resize(num_top);
    for (size_t k = 0; k < num_top; ++k) {
      const size_t at = i * kMostTopLogprobs + k;
      row.top[k] = {top_ids_[at], top_logprobs_[at]};
    }
  }
  return {};
}

// Rows of logits or hidden states, which belong to the outputs from first_output on.
Result<void> ModelRunner::show_rows(const TensorView& values, int64_t first_output, OnRow on_row) {
  const auto row = std::span(row_).first(static_cast<size_t>(values.dim(1)));
  for (int64_t i = 0; i < values.dim(0); ++i) {
    backend_.download(std::as_writable_bytes(row), values.row(i));
    MB_TRY(on_row(first_output + i, row));
  }
  return {};
}

// One call for each run of outputs whose sequences follow one another: their bitmaps stand
// together.
void ModelRunner::sample(std::span<const StepRow> rows, std::span<const int32_t> output_rows,
                         const TensorView& logits) {
  const auto sequence_of = [&](int64_t i) {
    return rows[static_cast<size_t>(output_rows[static_cast<size_t>(i)])].sequence;
  };
  const auto count = static_cast<int64_t>(output_rows.size());
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    while (end < count && sequence_of(end) == sequence_of(end - 1) + 1) ++end;
    const int64_t n = end - begin;
    backend_.sample({.logits = logits.slice(begin, n),
                     .params = device_.params + begin,
                     .positions = device_.sample_positions.slice(begin, n),
                     .seen = device_.seen.slice(sequence_of(begin), n),
                     .suppressed = device_.suppressed,
                     .ids = device_.sampled.slice(begin, n),
                     .scratch = device_.sample_scratch});
  }
}

Result<void> ModelRunner::run_for_logits(std::span<const StepRow> rows,
                                         std::span<const int32_t> output_rows,
                                         model::TraceSink* trace, OnRow on_row) {
  begin_step(rows, output_rows, /*show_all_rows=*/trace != nullptr);
  const auto traced = [&](base::FunctionRef<void()> body) {
    trace != nullptr ? body() : backend_.step(body);
  };
  traced([&] { decoder_.run_layers(step_, trace); });
  MB_TRY(end_step());
  return show_outputs(static_cast<int64_t>(output_rows.size()), on_row,
                      [&](const TensorView& output) {
                        TensorView logits;
                        traced([&] { logits = decoder_.run_head(output, trace); });
                        return logits;
                      });
}

Result<void> ModelRunner::run_for_hidden(std::span<const StepRow> rows,
                                         std::span<const int32_t> output_rows, OnRow on_row) {
  begin_step(rows, output_rows, /*show_all_rows=*/false);
  backend_.step([&] { decoder_.run_layers(step_); });
  MB_TRY(end_step());
  return show_outputs(static_cast<int64_t>(output_rows.size()), on_row,
                      [&](const TensorView& output) {
                        TensorView hidden;
                        backend_.step([&] { hidden = decoder_.run_final_norm(output); });
                        return hidden;
                      });
}

// Computes the values of as many of the count outputs at a time as there is room for.
Result<void> ModelRunner::show_outputs(
    int64_t count, OnRow on_row,
    base::FunctionRef<TensorView(const TensorView& output_rows)> compute) {
  const int64_t at_once = decoder_capacity(options_).max_output_rows;
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const TensorView values = compute(head_rows(begin, std::min(at_once, count - begin)));
    backend_.synchronize();
    MB_TRY(mapped_weights_.check_intact());  // the head's too
    MB_TRY(show_rows(values, begin, on_row));
  }
  return {};
}

}  // namespace markbase::runtime
