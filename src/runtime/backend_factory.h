// The one place that knows which backends are built in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "markbase/options.h"
#include "markbase/result.h"
#include "ops/backend.h"

namespace markbase::runtime {

// A backend with its threads.
struct BackendHandle {
  std::unique_ptr<base::ThreadPool> pool;
  std::unique_ptr<ops::Backend> backend;
  std::string description;  // "cpu (avx2, 2 threads)"
};

// Errors (kUsage): a backend that is not built in, an instruction set that the CPU lacks, a thread
// count or activation precision out of range.
Result<BackendHandle> make_backend(const EngineOptions& options);
// The threads that `options` asks for. Errors: kUsage.
Result<int> num_threads(const EngineOptions& options);
// auto: f16, and f32 on the reference backend. Errors: kUsage.
Result<ops::KvType> kv_type(const EngineOptions& options);

struct CpuLevel {
  std::string name;
  bool supported = false;
  std::string why_not;
};
// Weakest first.
std::vector<CpuLevel> cpu_levels();
// The level that "auto" takes.
std::string best_cpu_level();

}  // namespace markbase::runtime
