// doctor: what this machine is, and what a model would need on it.
#include <thread>

#include "base/error.h"
#include "base/guard.h"
#include "markbase/tools.h"
#include "runtime/loaded_model.h"
#include "runtime/tools/machine.h"

namespace markbase::tools {
namespace {

base::Json cpu_json() {
  base::Json levels = base::Json::array();
  for (const runtime::CpuLevel& level : runtime::cpu_levels()) {
    levels.push_back(
        {{"name", level.name}, {"supported", level.supported}, {"why_not", level.why_not}});
  }
  return {{"model", runtime::cpu_model_name()},
          {"level", runtime::best_cpu_level()},
          {"levels", std::move(levels)},
          {"cores", static_cast<int>(std::thread::hardware_concurrency())},
          {"usable_cores", base::default_num_threads()}};
}

base::Json memory_json() {
  const runtime::MachineMemory memory = runtime::machine_memory();
  return {{"total_bytes", memory.total_bytes},
          {"available_bytes", memory.available_bytes},
          {"limited_by", memory.limited_by}};
}

// The best of some passes: what the machine can do, not what it did at a busy moment.
Result<double> bandwidth(base::ThreadPool& pool) {
  constexpr int kPasses = 5;
  MB_ASSIGN(auto probe, runtime::BandwidthProbe::create(pool));
  double best = 0;
  for (int i = 0; i < kPasses; ++i) best = std::max(best, probe.measure());
  return best;
}

Result<base::Json> model_json(const std::string& path, const EngineOptions& options,
                              const runtime::BackendHandle& backend) {
  MB_ASSIGN(const runtime::ModelPath model_path, runtime::open_model_path(path));
  MB_ASSIGN(const auto source, formats::open_weight_source(model_path.path));
  MB_ASSIGN(const model::TextConfig config, model::read_config(*source));
  MB_ASSIGN(const model::WeightMap map, model::map_weights(*source, config));
  MB_ASSIGN(runtime::RunnerOptions runner, runtime::runner_options(options));
  const Result<runtime::MemoryPlan> chosen =
      runtime::choose_context(config, map, *backend.backend, options, &runner);
  if (!chosen.ok() && chosen.error().code != ErrorCode::kOutOfMemory) return chosen.error();
  const runtime::MemoryPlan plan =
      runtime::plan_memory(config, map, *backend.backend, runner, options.memory_bytes);
  return base::Json{{"path", model_path.path},
                    {"architecture", config.model_type},
                    {"backend", backend.description},
                    {"plan", runtime::plan_json(plan)},
                    {"plan_text", runtime::plan_text(plan)}};
}

Result<void> check_engine_unguarded(const EngineOptions& options) {
  MB_TRY(runtime::check_options(options));
  MB_TRY(runtime::make_backend(options));
  return {};
}

Result<std::string> doctor_unguarded(const std::string& model_path, const EngineOptions& options) {
  MB_TRY(runtime::check_options(options));
  MB_ASSIGN(const runtime::BackendHandle backend, runtime::make_backend(options));
  MB_ASSIGN(const double gb_per_s, bandwidth(*backend.pool));
  base::Json out = {{"cpu", cpu_json()},
                    {"memory", memory_json()},
                    {"gpu", nullptr},
                    {"gpu_note", "this build has no GPU backend"},
                    {"backend", backend.description},
                    {"threads", backend.pool->num_threads()},
                    {"bandwidth_gb_per_s", gb_per_s},
                    {"model", nullptr}};
  if (!model_path.empty()) {
    MB_ASSIGN(out["model"], model_json(model_path, options, backend));
  }
  return base::dump_json(out);
}

}  // namespace

Result<void> check_engine(const EngineOptions& options) {
  return base::guarded("check_engine", [&] { return check_engine_unguarded(options); });
}

Result<std::string> doctor_json(const std::string& model_path, const EngineOptions& options) {
  return base::guarded("doctor_json", [&] { return doctor_unguarded(model_path, options); });
}

}  // namespace markbase::tools
