// Logits and intermediates of a given text, streamed row by row.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "markbase/engine.h"
#include "model/text_decoder.h"
#include "runtime/loaded_model.h"

namespace markbase::runtime {

// `*` any run of characters, `?` any one.
bool glob_matches(std::string_view pattern, std::string_view text);

// Hands intermediates to the caller as they come, and remembers the first error it returns.
class Tracer final : public model::TraceSink {
 public:
  Tracer(ops::Backend& backend, std::string only, const OnTrace& on_trace)
      : backend_(backend), only_(std::move(only)), on_trace_(on_trace) {}
  bool wants(std::string_view name) override;
  void show(std::string_view name, const tensor::TensorView& values) override;
  const Result<void>& result() const { return result_; }

 private:
  ops::Backend& backend_;
  std::string only_;
  const OnTrace& on_trace_;
  std::vector<float> values_;
  Result<void> result_;
};

// Runs `ids` from an empty cache in chunks; calls on_row for every position, or the last only.
// `progress` hears of each chunk.
Result<void> stream_logits(LoadedModel& model, std::span<const int32_t> ids, bool last_only,
                           Tracer* tracer, const OnLogits& on_row,
                           const std::function<void(const Progress&)>& progress = {});

}  // namespace markbase::runtime
