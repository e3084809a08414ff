#include "runtime/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "model/text_weights.h"
#include "runtime/model_runner.h"

namespace markbase::runtime {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// "MemAvailable:   123 kB" of /proc/meminfo, in bytes; 0 when it cannot be read.
uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    uint64_t kilobytes = 0;
    rest >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

// A number in a file; kNoLimit for "max", a missing file or anything else.
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : kNoLimit;
}

// "inactive_file 123" of memory.stat: page cache that the limit gives back when asked.
uint64_t reclaimable_in(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") return value;
  }
  return 0;
}

// What the cgroup of this process leaves, version 2 or 1, this level and those above.
uint64_t cgroup_left_bytes() {
  uint64_t left = kNoLimit;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  const auto apply = [&](const std::string& folder, const char* limit, const char* usage) {
    const uint64_t limit_bytes = number_in(folder + limit);
    const uint64_t used_bytes = number_in(folder + usage);
    if (limit_bytes == kNoLimit || used_bytes == kNoLimit) return;
    const uint64_t cache_bytes = std::min(used_bytes, reclaimable_in(folder + "/memory.stat"));
    const uint64_t held_bytes = used_bytes - cache_bytes;
    left = std::min(left, limit_bytes > held_bytes ? limit_bytes - held_bytes : 0);
  };
  while (std::getline(groups, line)) {
    const bool version2 = line.starts_with("0::");
    const size_t memory = line.find(":memory:");
    if (!version2 && memory == std::string::npos) continue;
    std::string group = version2 ? line.substr(3) : line.substr(memory + 8);
    const std::string root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* limit = version2 ? "/memory.max" : "/memory.limit_in_bytes";
    const char* usage = version2 ? "/memory.current" : "/memory.usage_in_bytes";
    while (!group.empty() && group != "/") {
      apply(root + group, limit, usage);
      group = group.substr(0, group.rfind('/'));
    }
    apply(root, limit, usage);
  }
  return left;
}

}  // namespace

MachineMemory machine_memory() {
  MachineMemory memory;
  memory.total_bytes = meminfo_bytes("MemTotal");
  memory.available_bytes = meminfo_bytes("MemAvailable");
  memory.limited_by = "free memory";
  const uint64_t left = cgroup_left_bytes();
  if (left < memory.available_bytes) {
    memory.available_bytes = left;
    memory.limited_by = "the memory limit of this container";
  }
  return memory;
}

MemoryPlan plan_memory(const model::TextConfig& config, const model::WeightMap& map,
                       const ops::Backend& backend, const RunnerOptions& runner,
                       uint64_t memory_bytes) {
  MemoryPlan plan;
  for (const model::MappedWeight& weight : map.weights) {
    if (model::is_mapped_table(weight)) {
      plan.table_bytes +=
          weight.view.data.size() + weight.view.scales.size() + weight.view.biases.size();
      continue;
    }
    plan.weight_bytes += weight.is_vector ? static_cast<uint64_t>(weight.view.cols) * sizeof(float)
                                          : backend.packed_bytes(weight.view);
  }
  plan.kv_bytes = ModelRunner::kv_bytes(config, backend, runner);
  plan.scratch_bytes = ModelRunner::scratch_bytes(config, backend, runner);
  plan.context_tokens = runner.context_tokens;
  plan.max_sequences = runner.max_sequences;
  plan.pool_tokens = runner.max_sequences * runner.context_tokens;
  if (runner.kv_pool_tokens != 0) {
    plan.pool_tokens = std::clamp(runner.kv_pool_tokens, runner.context_tokens, plan.pool_tokens);
  }
  const MachineMemory memory = machine_memory();
  plan.budget_bytes = memory.available_bytes;
  plan.budget_source = memory.limited_by;
  if (memory_bytes != 0 && memory_bytes < memory.available_bytes) {
    plan.budget_bytes = memory_bytes;
    plan.budget_source = "the budget given";
  }
  return plan;
}

MemoryPlan with_mapped_weights(MemoryPlan plan, const model::WeightMap& map,
                               const ops::Backend& backend) {
  uint64_t packed_bytes = 0;
  for (const model::MappedWeight& weight : map.weights) {
    if (model::is_packed(weight)) packed_bytes += backend.packed_bytes(weight.view);
  }
  plan.weight_bytes -= packed_bytes;
  plan.mapped_weight_bytes += packed_bytes;
  return plan;
}

Result<int64_t> context_limit(const model::TextConfig& config, const EngineOptions& options) {
  const int64_t limit = config.max_position_embeddings;
  if (options.context_tokens < 0 || options.context_tokens > limit) {
    return base::usage_error("--ctx: expected 1 to {}, the model's limit, got {}", limit,
                             options.context_tokens);
  }
  return options.context_tokens == 0 ? limit : options.context_tokens;
}

int64_t pool_tokens(int64_t context_tokens, int64_t max_sequences) {
  constexpr int64_t kUsualTokens = 4096;
  return context_tokens + (max_sequences - 1) * std::min(context_tokens, kUsualTokens);
}

namespace {

// The first plan that fits at this context, or the last: fewer prefixes kept, then one context for
// all sequences together, then no prefix at all.
MemoryPlan plan_context(const model::TextConfig& config, const model::WeightMap& map,
                        const ops::Backend& backend, const EngineOptions& options,
                        int64_t kept_windows, RunnerOptions* runner) {
  const int64_t context = runner->context_tokens;
  MemoryPlan plan;
  const auto fits = [&](int64_t pool, int64_t kept) {
    runner->kv_pool_tokens = pool;
    runner->kept_windows = kept;
    plan = plan_memory(config, map, backend, *runner, options.memory_bytes);
    return plan.fits();
  };
  for (const int64_t pool : {pool_tokens(context, runner->max_sequences), context}) {
    if (kept_windows == 0 && fits(pool, 0)) return plan;
    for (int64_t kept = kept_windows; kept > 0; kept /= 2) {
      if (fits(pool, kept)) return plan;
    }
  }
  fits(context, 0);
  return plan;
}

}  // namespace

Result<MemoryPlan> choose_context(const model::TextConfig& config, const model::WeightMap& map,
                                  const ops::Backend& backend, const EngineOptions& options,
                                  RunnerOptions* runner) {
  // Below this a shorter context saves nothing worth having.
  constexpr int64_t kShortestChosen = 1024;
  MB_ASSIGN(runner->context_tokens, context_limit(config, options));
  const int64_t kept_windows = runner->kept_windows;
  while (true) {
    const MemoryPlan plan = plan_context(config, map, backend, options, kept_windows, runner);
    if (plan.fits()) return plan;
    if (options.context_tokens != 0 || runner->context_tokens <= kShortestChosen) {
      return base::out_of_memory("the model does not fit: {}", plan_text(plan));
    }
    runner->context_tokens = std::max(kShortestChosen, runner->context_tokens / 2);
  }
}

std::string bytes_text(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  constexpr double kMiB = 1024.0 * 1024.0;
  if (value >= 1024.0 * kMiB) return fmt::format("{:.2f} GiB", value / (1024.0 * kMiB));
  if (value >= kMiB) return fmt::format("{:.1f} MiB", value / kMiB);
  return fmt::format("{:.1f} KiB", value / 1024.0);
}

std::string plan_text(const MemoryPlan& plan) {
  std::string tokens = fmt::format("{} tokens", plan.context_tokens);
  if (plan.pool_tokens == plan.max_sequences * plan.context_tokens) {
    if (plan.max_sequences > 1) tokens = fmt::format("{} x {}", plan.max_sequences, tokens);
  } else {
    tokens =
        fmt::format("{} x up to {}, {} together", plan.max_sequences, tokens, plan.pool_tokens);
  }
  const std::string probe =
      plan.probe_bytes == 0 ? std::string() : " + bandwidth probe " + bytes_text(plan.probe_bytes);
  const std::string mapped = plan.mapped_weight_bytes == 0
                                 ? std::string()
                                 : " and " + bytes_text(plan.mapped_weight_bytes) + " mapped";
  return fmt::format("weights {} + KV cache {} ({}) + scratch {}{} = {}{} of {} ({})",
                     bytes_text(plan.weight_bytes), bytes_text(plan.kv_bytes), tokens,
                     bytes_text(plan.scratch_bytes), probe, bytes_text(plan.total_bytes()), mapped,
                     bytes_text(plan.budget_bytes), plan.budget_source);
}

base::Json plan_json(const MemoryPlan& plan) {
  return {{"weight_bytes", plan.weight_bytes},
          {"kv_bytes", plan.kv_bytes},
          {"scratch_bytes", plan.scratch_bytes},
          {"total_bytes", plan.total_bytes()},
          {"mapped_weight_bytes", plan.mapped_weight_bytes},
          {"table_bytes", plan.table_bytes},
          {"context_tokens", plan.context_tokens},
          {"budget_bytes", plan.budget_bytes},
          {"budget_source", plan.budget_source},
          {"fits", plan.fits()}};
}

}  // namespace markbase::runtime
