// What a request asks for, checked, and the rows that its prompt becomes.
#pragma once

#include <span>
#include <vector>

#include "markbase/engine.h"
#include "runtime/loaded_model.h"

namespace markbase::runtime {

// Errors (kUsage): a sampling parameter, a number (of tokens, answers, logprobs, milliseconds) or a
// stop string out of range; several prompts, or what does not go with the one that there is.
Result<void> check_request(const Request& request);
// Errors (kUsage): an id outside the vocabulary, no id at all, more ids than the context holds.
Result<void> check_prompt(std::span<const int32_t> ids, const LoadedModel& model);
// The ids that a request starts from. Errors: kUsage, and kBadInput where the model has no chat
// format.
Result<std::vector<int32_t>> prompt_ids(const Request& request, const LoadedModel& model);

// Tells of a prompt on its way, chunk by chunk, and of its end whatever way it ends.
class PromptProgress {
 public:
  PromptProgress(const std::function<void(const Progress&)>& progress, size_t num_tokens)
      : progress_(progress), num_tokens_(num_tokens) {}
  ~PromptProgress();
  PromptProgress(const PromptProgress&) = delete;
  PromptProgress& operator=(const PromptProgress&) = delete;
  // So many tokens are read.
  void at(size_t tokens) const;

 private:
  const std::function<void(const Progress&)>& progress_;
  size_t num_tokens_;
};

// Rows of one sequence at positions begin, begin + 1, ...
void fill_rows(std::span<const int32_t> ids, int64_t begin, int sequence,
               std::vector<StepRow>* rows);

}  // namespace markbase::runtime
