// The CPU backend: exact integer products, one arithmetic on every instruction set.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "markbase/result.h"
#include "ops/backend.h"

namespace markbase::backends {

// Instruction sets with kernels of their own, weakest first. Every level gives the same bits.
enum class CpuIsa { kGeneric, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAmx };
// The names of --cpu-isa: generic, avx2, avxvnni, avx512, vnni, amx.
std::string_view cpu_isa_name(CpuIsa isa);
std::span<const CpuIsa> all_cpu_isas();
// nullopt for an unknown name.
std::optional<CpuIsa> parse_cpu_isa(std::string_view name);
// What this machine (CPU and operating system) can run; for AMX also asks the kernel for the tile
// state.
bool cpu_supports(CpuIsa isa);
// Why not, for people: "the CPU lacks avx512_vnni". Empty when supported.
std::string cpu_isa_obstacle(CpuIsa isa);
CpuIsa best_cpu_isa();

enum class ActivationPrecision { k16, kQ8 };

struct CpuOptions {
  CpuIsa isa = CpuIsa::kGeneric;  // must be supported
  ActivationPrecision activations = ActivationPrecision::k16;
};

// `pool` outlives the backend.
std::unique_ptr<ops::Backend> make_cpu_backend(base::ThreadPool& pool, const CpuOptions& options);

}  // namespace markbase::backends
