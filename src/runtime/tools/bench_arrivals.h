// Requests that arrive over time, answered by one engine: throughput and latency.
#pragma once

#include <string>
#include <vector>

#include "markbase/tools.h"

namespace markbase::runtime {

// The document of bench with a test of kind "arrivals" for each of options.batches, an engine of so
// many sequences each: options.arrivals.requests requests, with prompts of random ids of the
// lengths options.prefill_tokens and answers of exactly options.decode_tokens, once for each
// repetition with other prompts. Errors: kUsage for options out of range or a request beyond the
// context; those of the engine; kFailed for an answer of another length.
Result<std::string> bench_arrivals(const std::string& path, const EngineOptions& engine,
                                   const tools::BenchOptions& options);

// The nearest-rank percentile: the least of the values that so many percent of them do not exceed.
// Precondition: there are some, 0 < percent <= 100.
double percentile(std::vector<double> values, double percent);

}  // namespace markbase::runtime
