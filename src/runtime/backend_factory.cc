#include "runtime/backend_factory.h"

#include "backends/cpu/cpu_backend.h"
#include "backends/ref/ref_backend.h"
#include "base/error.h"

namespace markbase::runtime {
namespace {

Result<backends::CpuOptions> cpu_options(const EngineOptions& options) {
  backends::CpuOptions cpu;
  cpu.isa = backends::best_cpu_isa();
  if (options.cpu_isa != "auto") {
    const std::optional<backends::CpuIsa> isa = backends::parse_cpu_isa(options.cpu_isa);
    if (!isa) {
      return base::usage_error(
          "--cpu-isa: expected auto, generic, avx2, avxvnni, avx512, vnni or amx, got \"{}\"",
          options.cpu_isa);
    }
    if (!backends::cpu_supports(*isa)) {
      return base::usage_error("--cpu-isa {}: {}", options.cpu_isa,
                               backends::cpu_isa_obstacle(*isa));
    }
    cpu.isa = *isa;
  }
  if (options.activations == "q8") cpu.activations = backends::ActivationPrecision::kQ8;
  return cpu;
}

Result<void> check_activations(const EngineOptions& options) {
  for (const char* known : {"auto", "16", "q8"}) {
    if (options.activations == known) return {};
  }
  return base::usage_error("--activations: expected auto, 16 or q8, got \"{}\"",
                           options.activations);
}

// It computes in one way: what chooses another one would be ignored.
Result<void> check_ref_options(const EngineOptions& options) {
  if (options.cpu_isa != "auto") {
    return base::usage_error(
        "--cpu-isa {}: the reference backend has no kernels to choose from, expected auto",
        options.cpu_isa);
  }
  if (options.activations == "q8") {
    return base::usage_error("--activations q8: the reference backend computes in float");
  }
  return {};
}

}  // namespace

Result<int> num_threads(const EngineOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMostThreads) {
    return base::usage_error("--threads: expected 1 to {} (0: as many as there are cores), got {}",
                             kMostThreads, options.num_threads);
  }
  return options.num_threads == 0 ? base::default_num_threads() : options.num_threads;
}

Result<ops::KvType> kv_type(const EngineOptions& options) {
  const bool reference = options.backend == BackendKind::kRef;
  if (options.kv == "auto") return reference ? ops::KvType::kF32 : ops::KvType::kF16;
  for (const ops::KvType type :
       {ops::KvType::kF16, ops::KvType::kBF16, ops::KvType::kF32, ops::KvType::kQ8}) {
    if (options.kv == ops::kv_type_name(type)) return type;
  }
  return base::usage_error("--kv: expected auto, f16, bf16, f32 or q8, got \"{}\"", options.kv);
}

Result<BackendHandle> make_backend(const EngineOptions& options) {
  if (options.backend < BackendKind::kAuto || options.backend > BackendKind::kRef) {
    return base::usage_error("--backend: expected one of those that there are, got number {}",
                             static_cast<int>(options.backend));
  }
  if (options.backend == BackendKind::kCuda) {
    return base::usage_error("--backend cuda: this build has no CUDA backend");
  }
  MB_ASSIGN(const int threads, num_threads(options));
  MB_TRY(check_activations(options));
  const char* plural = threads == 1 ? "thread" : "threads";
  BackendHandle handle;
  if (options.backend == BackendKind::kRef) {
    MB_TRY(check_ref_options(options));
    handle.pool = std::make_unique<base::ThreadPool>(threads);
    handle.backend = backends::make_ref_backend(*handle.pool);
    handle.description = fmt::format("ref ({} {})", threads, plural);
    return handle;
  }
  MB_ASSIGN(const backends::CpuOptions cpu, cpu_options(options));
  handle.pool = std::make_unique<base::ThreadPool>(threads);
  handle.backend = backends::make_cpu_backend(*handle.pool, cpu);
  handle.description = fmt::format(
      "cpu ({}, {} {}{})", backends::cpu_isa_name(cpu.isa), threads, plural,
      cpu.activations == backends::ActivationPrecision::kQ8 ? ", 8-bit activations" : "");
  return handle;
}

std::vector<CpuLevel> cpu_levels() {
  std::vector<CpuLevel> levels;
  for (const backends::CpuIsa isa : backends::all_cpu_isas()) {
    levels.push_back({std::string(backends::cpu_isa_name(isa)), backends::cpu_supports(isa),
                      backends::cpu_isa_obstacle(isa)});
  }
  return levels;
}

std::string best_cpu_level() {
  return std::string(backends::cpu_isa_name(backends::best_cpu_isa()));
}

}  // namespace markbase::runtime
