// Sampling options of run and chat: what is not given comes from the model's own defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"

namespace markbase::cli {

struct SamplingFlags {
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

void add_sampling_options(CLI::App& app, SamplingFlags& flags);
// How a message names a value: --top-k or "top_k".
enum class NamedAs { kOption, kKey };
// Ranges, before a model is loaded. Errors: kUsage.
Result<void> check_sampling(const SamplingFlags& flags, NamedAs named_as = NamedAs::kOption);
// Fills request.sampling, max_tokens, stop and ignore_eos. Without --seed one is drawn from the
// system.
// The flags must have passed check_sampling.
void apply_sampling(const SamplingFlags& flags, const SamplingOptions& defaults, Request& request);
// Says on stderr which of the model's own values the command line replaces.
void note_overrides(const SamplingFlags& flags, const SamplingOptions& defaults, bool quiet);
// Says the seed that was drawn for the request, unless it was given or nothing is drawn.
void note_seed(const SamplingFlags& flags, const Request& request, bool quiet);
// With -v: how the next token is drawn, whatever asked for it.
void explain_sampling(const Request& request, const SharedOptions& shared);
// "prompt 12 tokens, 350 tokens/s | first token after 40 ms | 48 tokens, 77.1 tokens/s"
std::string timing_line(const Timings& timings);

}  // namespace markbase::cli
