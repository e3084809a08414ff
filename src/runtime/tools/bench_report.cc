#include "runtime/tools/bench_report.h"

#include "runtime/tools/machine.h"

namespace markbase::runtime {

base::Json load_test(const LoadedModel& model) {
  const double seconds = model.load_ms / 1e3;
  return {{"kind", "load"},
          {"tokens", 0},
          {"depth", 0},
          {"batch", 1},
          {"tokens_per_s", nullptr},
          {"bytes_read", model.weights.total_bytes()},
          {"share_of_bandwidth", nullptr},
          {"load_ms", model.load_ms},
          {"bytes_per_s",
           seconds > 0 ? static_cast<double>(model.weights.total_bytes()) / seconds : 0.0}};
}

std::string bench_document(const LoadedModel& model, base::Json tests) {
  const base::Json model_json = {
      {"path", model.path.path},
      {"architecture", model.config.model_type},
      {"layers", model.config.num_hidden_layers},
      {"weight_bytes", model.weights.total_bytes()},
      {"weight_bytes_per_token", model.weights.bytes_per_token()},
      {"kv", ops::kv_type_name(model.runner_options.kv)},
      {"prefill_chunk_tokens", model.runner_options.prefill_chunk_tokens},
      {"plan", plan_json(model.plan)}};
  return base::dump_json(
      {{"machine", machine_json(model.backend.description, model.backend.pool->num_threads())},
       {"model", model_json},
       {"tests", std::move(tests)}});
}

}  // namespace markbase::runtime
