#include "runtime/logits.h"

#include <algorithm>

#include "runtime/generation.h"

namespace markbase::runtime {

namespace {

// A sequence that is closed whatever happens.
class OpenSequence {
 public:
  explicit OpenSequence(ModelRunner& runner) : runner_(runner), idx_(runner.open_sequence()) {}
  ~OpenSequence() {
    if (idx_ >= 0) runner_.close_sequence(idx_);
  }
  OpenSequence(const OpenSequence&) = delete;
  OpenSequence& operator=(const OpenSequence&) = delete;
  int idx() const { return idx_; }

 private:
  ModelRunner& runner_;
  int idx_;
};

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
  // On a mismatch the last star takes one character more: linear in pattern times text.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Tracer::wants(std::string_view name) {
  // The logits come through on_row.
  return result_.ok() && name != "logits" && glob_matches(only_, name);
}

void Tracer::show(std::string_view name, const tensor::TensorView& values) {
  MB_CHECK(values.contiguous());
  values_.resize(static_cast<size_t>(values.num_elements()));
  backend_.synchronize();
  backend_.download(std::as_writable_bytes(std::span(values_)), values.data);
  const std::span<const int64_t> shape(values.shape.data(), static_cast<size_t>(values.rank));
  if (on_trace_) result_ = on_trace_({name, shape, values_});
}

Result<void> stream_logits(LoadedModel& model, std::span<const int32_t> ids, bool last_only,
                           Tracer* tracer, const OnLogits& on_row,
                           const std::function<void(const Progress&)>& progress) {
  MB_TRY(check_prompt(ids, model));
  ModelRunner& runner = *model.runner;
  const OpenSequence open(runner);
  const int sequence = open.idx();
  MB_CHECK(sequence >= 0);
  const auto chunk = static_cast<size_t>(model.runner_options.prefill_chunk_tokens);
  std::vector<StepRow> rows;
  std::vector<int32_t> outputs;
  Result<void> result;
  const PromptProgress told(progress, ids.size());
  for (size_t begin = 0; begin < ids.size() && result.ok(); begin += chunk) {
    const size_t count = std::min(chunk, ids.size() - begin);
    told.at(begin);
    fill_rows(ids.subspan(begin, count), static_cast<int64_t>(begin), sequence, &rows);
    outputs.clear();
    for (size_t i = 0; i < count; ++i) {
      if (!last_only || begin + i + 1 == ids.size()) outputs.push_back(static_cast<int32_t>(i));
    }
    const auto row = [&](int64_t output, std::span<const float> logits) -> Result<void> {
      const int32_t in_chunk = outputs[static_cast<size_t>(output)];
      return on_row ? on_row(static_cast<int64_t>(begin) + in_chunk, logits) : Result<void>();
    };
    result = runner.run_for_logits(rows, outputs, tracer, row);
    if (result.ok() && tracer != nullptr) result = tracer->result();
  }
  return result;
}

}  // namespace markbase::runtime
