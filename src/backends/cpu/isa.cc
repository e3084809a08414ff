// Which instruction sets this CPU and this operating system can run.
#include <array>

#include "backends/cpu/cpu_backend.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace markbase::backends {
namespace {

constexpr std::array kAllIsas = {CpuIsa::kGeneric, CpuIsa::kAvx2,       CpuIsa::kAvxVnni,
                                 CpuIsa::kAvx512,  CpuIsa::kAvx512Vnni, CpuIsa::kAmx};

// What cpuid and xgetbv say.
struct Features {
  bool avx2 = false, fma = false, f16c = false, avxvnni = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512vnni = false;
  bool amx_tile = false, amx_int8 = false, gfni = false;
  bool os_ymm = false, os_zmm = false, os_tiles = false;
};

#if defined(__x86_64__)

bool bit(unsigned word, int n) { return ((word >> n) & 1u) != 0; }

// Which register files the operating system saves (XCR0).
uint64_t saved_state() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Linux hands tile registers out on demand: ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA.
bool ask_for_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void read_extended_leaves(Features* f) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  const unsigned max_subleaf = a;
  f->avx2 = bit(b, 5);
  f->avx512f = bit(b, 16);
  f->avx512dq = bit(b, 17);
  f->avx512bw = bit(b, 30);
  f->avx512vl = bit(b, 31);
  f->avx512vnni = bit(c, 11);
  f->gfni = bit(c, 8);
  f->amx_tile = bit(d, 24);
  f->amx_int8 = bit(d, 25);
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) f->avxvnni = bit(a, 4);
}

Features read_features() {
  Features f;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return f;
  f.fma = bit(c, 12);
  f.f16c = bit(c, 29);
  const bool has_xgetbv = bit(c, 27);
  if (!has_xgetbv) return f;
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  const uint64_t saved = saved_state();
  f.os_ymm = (saved & kYmm) == kYmm;
  f.os_zmm = (saved & kZmm) == kZmm;
  read_extended_leaves(&f);
  f.os_tiles = f.amx_tile && (saved & kTiles) == kTiles && ask_for_tiles();
  return f;
}

#else

Features read_features() { return {}; }

#endif

// The first thing that is missing, or null.
const char* missing(CpuIsa isa, const Features& f) {
  if (isa == CpuIsa::kGeneric) return nullptr;
  if (!f.avx2) return "the CPU lacks avx2";
  if (!f.fma) return "the CPU lacks fma";
  if (!f.f16c) return "the CPU lacks f16c";
  if (!f.os_ymm) return "the operating system does not save AVX registers";
  if (isa == CpuIsa::kAvx2) return nullptr;
  if (isa == CpuIsa::kAvxVnni) return f.avxvnni ? nullptr : "the CPU lacks avx_vnni";
  if (!f.avx512f) return "the CPU lacks avx512f";
  if (!f.avx512bw) return "the CPU lacks avx512bw";
  if (!f.avx512dq) return "the CPU lacks avx512dq";
  if (!f.avx512vl) return "the CPU lacks avx512vl";
  if (!f.os_zmm) return "the operating system does not save AVX-512 registers";
  if (isa == CpuIsa::kAvx512) return nullptr;
  if (!f.avx512vnni) return "the CPU lacks avx512_vnni";
  if (isa == CpuIsa::kAvx512Vnni) return nullptr;
  if (!f.amx_tile) return "the CPU lacks amx_tile";
  if (!f.amx_int8) return "the CPU lacks amx_int8";
  if (!f.gfni) return "the CPU lacks gfni";
  if (!f.os_tiles) return "the operating system does not grant tile registers";
  return nullptr;
}

}  // namespace

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kGeneric:
      return "generic";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvxVnni:
      return "avxvnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Vnni:
      return "vnni";
    case CpuIsa::kAmx:
      return "amx";
  }
  return "?";
}

std::span<const CpuIsa> all_cpu_isas() { return kAllIsas; }

std::optional<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (CpuIsa isa : kAllIsas) {
    if (cpu_isa_name(isa) == name) return isa;
  }
  return std::nullopt;
}

bool cpu_supports(CpuIsa isa) { return missing(isa, read_features()) == nullptr; }

std::string cpu_isa_obstacle(CpuIsa isa) {
  const char* reason = missing(isa, read_features());
  return reason == nullptr ? std::string() : std::string(reason);
}

CpuIsa best_cpu_isa() {
  const Features features = read_features();
  CpuIsa best = CpuIsa::kGeneric;
  for (CpuIsa isa : kAllIsas) {
    if (missing(isa, features) == nullptr) best = isa;
  }
  return best;
}

}  // namespace markbase::backends
