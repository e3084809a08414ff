// Two row blocks and twelve, eight or four rows of x at once, for AVX-512 VNNI: so many sums hide
// the latency of the product, and each pair of x that is fetched meets both blocks. In assembly
// because the compiler keeps a pointer for each row of x, more than there are registers for, and
// spills the sums.
#pragma once

#include "backends/cpu/kernels/linear_fused-inl.h"

#if defined(__AVX512VNNI__)

namespace markbase::backends::cpu {
namespace {

// Rows of x that a call takes when so many are left, 0 for the last one alone. Up to
// kRowsReadBeyond of them may be rows that x does not have: their sums are dropped, and to leave
// them out would take longer. Fourteen to sixteen rows are twice eight, because four at once hide
// less.
constexpr int pair_tokens(int64_t left) {
  if (left > 16 || (left >= 10 && left <= 13)) return 12;
  if (left >= 5) return 8;
  return left > 1 ? 4 : 0;
}
static_assert(kRowsReadBeyond >= 3);

// A group of `pairs` (a multiple of 4) pairs of columns.
struct PairGroup {
  const uint8_t* x;      // x16 of the first row of x
  int64_t stride;        // bytes between rows of x
  const int16_t* panel;  // of the first row block
  int64_t pairs;
  const float* scales;  // of the first row block
  float* segment;       // [2][rows of x][16] sums of the segment, updated
};

// clang-format off
#define MB_ROW(i, t, u, address, temp)                          \
  "vpbroadcastd 4*" #i address ", %%zmm" #temp "\n\t"           \
  "vpdpwssd %%zmm" #temp ", %%zmm24, %%zmm" #t "\n\t"           \
  "vpdpwssd %%zmm" #temp ", %%zmm25, %%zmm" #u "\n\t"
#define MB_PANELS(i)                                            \
  "vmovdqa32 64*" #i "(%[p]), %%zmm24\n\t"                      \
  "vmovdqa32 64*" #i "+%c[next](%[p]), %%zmm25\n\t"
#define MB_STEP_12(i) \
  MB_PANELS(i) \
  MB_ROW(i, 0, 12, "(%[x])", 26) \
  MB_ROW(i, 1, 13, "(%[x],%[r1])", 27) \
  MB_ROW(i, 2, 14, "(%[x],%[r1],2)", 28) \
  MB_ROW(i, 3, 15, "(%[x],%[r3])", 29) \
  MB_ROW(i, 4, 16, "(%[x],%[r1],4)", 30) \
  MB_ROW(i, 5, 17, "(%[x],%[r5])", 31) \
  MB_ROW(i, 6, 18, "(%[x],%[r3],2)", 26) \
  MB_ROW(i, 7, 19, "(%[x],%[r7])", 27) \
  MB_ROW(i, 8, 20, "(%[x],%[r1],8)", 28) \
  MB_ROW(i, 9, 21, "(%[x],%[r9])", 29) \
  MB_ROW(i, 10, 22, "(%[x],%[r5],2)", 30) \
  MB_ROW(i, 11, 23, "(%[x],%[r11])", 31)
#define MB_STEP_8(i) \
  MB_PANELS(i) \
  MB_ROW(i, 0, 8, "(%[x])", 26) \
  MB_ROW(i, 1, 9, "(%[x],%[r1])", 27) \
  MB_ROW(i, 2, 10, "(%[x],%[r1],2)", 28) \
  MB_ROW(i, 3, 11, "(%[x],%[r3])", 29) \
  MB_ROW(i, 4, 12, "(%[x],%[r1],4)", 30) \
  MB_ROW(i, 5, 13, "(%[x],%[r5])", 31) \
  MB_ROW(i, 6, 14, "(%[x],%[r3],2)", 26) \
  MB_ROW(i, 7, 15, "(%[x],%[r7])", 27)
#define MB_STEP_4(i) \
  MB_PANELS(i) \
  MB_ROW(i, 0, 4, "(%[x])", 26) \
  MB_ROW(i, 1, 5, "(%[x],%[r1])", 27) \
  MB_ROW(i, 2, 6, "(%[x],%[r1],2)", 28) \
  MB_ROW(i, 3, 7, "(%[x],%[r3])", 29)
#define MB_ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
// segment = fma(scale, float(sum), segment)
#define MB_END(n, scale)                                        \
  "vcvtdq2ps %%zmm" #n ", %%zmm" #n "\n\t"                      \
  "vfmadd213ps 64*" #n "(%[seg]), %%zmm" #scale ", %%zmm" #n "\n\t" \
  "vmovaps %%zmm" #n ", 64*" #n "(%[seg])\n\t"

#define MB_NEXT_STEPS                                           \
  "addq $16, %[x]\n\t"                                          \
  "addq $256, %[p]\n\t"                                         \
  "cmpq %[end], %[p]\n\t"                                       \
  "jne 1b\n\t"                                                  \
  "vmovaps (%[s]), %%zmm24\n\t"                                 \
  "vmovaps %c[next](%[s]), %%zmm25\n\t"
#define MB_CLOBBERS                                                                             \
  "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",      \
  "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20",     \
  "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30",     \
  "zmm31"

// `kNext`: bytes from what belongs to the first row block to the same of the second.
template <int64_t kNext>
inline void multiply_pair_12(const PairGroup& g) {
  const uint8_t* x = g.x;
  const int16_t* panel = g.panel;
  const int64_t r = g.stride;
  __asm__ volatile(
      MB_ZERO(0) MB_ZERO(1) MB_ZERO(2) MB_ZERO(3) MB_ZERO(4) MB_ZERO(5)
      MB_ZERO(6) MB_ZERO(7) MB_ZERO(8) MB_ZERO(9) MB_ZERO(10) MB_ZERO(11)
      MB_ZERO(12) MB_ZERO(13) MB_ZERO(14) MB_ZERO(15) MB_ZERO(16) MB_ZERO(17)
      MB_ZERO(18) MB_ZERO(19) MB_ZERO(20) MB_ZERO(21) MB_ZERO(22) MB_ZERO(23)
      "1:\n\t"
      MB_STEP_12(0) MB_STEP_12(1) MB_STEP_12(2) MB_STEP_12(3)
      MB_NEXT_STEPS
      MB_END(0, 24) MB_END(1, 24) MB_END(2, 24) MB_END(3, 24)
      MB_END(4, 24) MB_END(5, 24) MB_END(6, 24) MB_END(7, 24)
      MB_END(8, 24) MB_END(9, 24) MB_END(10, 24) MB_END(11, 24)
      MB_END(12, 25) MB_END(13, 25) MB_END(14, 25) MB_END(15, 25)
      MB_END(16, 25) MB_END(17, 25) MB_END(18, 25) MB_END(19, 25)
      MB_END(20, 25) MB_END(21, 25) MB_END(22, 25) MB_END(23, 25)
      : [x] "+r"(x), [p] "+r"(panel)
      : [end] "r"(g.panel + g.pairs * 2 * kLanes), [r1] "r"(r), [r3] "r"(3 * r), [r5] "r"(5 * r), [r7] "r"(7 * r),
        [r9] "r"(9 * r), [r11] "r"(11 * r),
        [s] "r"(g.scales), [seg] "r"(g.segment), [next] "i"(kNext)
      : "cc", "memory", MB_CLOBBERS);
}

template <int64_t kNext>
inline void multiply_pair_8(const PairGroup& g) {
  const uint8_t* x = g.x;
  const int16_t* panel = g.panel;
  const int64_t r = g.stride;
  __asm__ volatile(
      MB_ZERO(0) MB_ZERO(1) MB_ZERO(2) MB_ZERO(3) MB_ZERO(4) MB_ZERO(5)
      MB_ZERO(6) MB_ZERO(7) MB_ZERO(8) MB_ZERO(9) MB_ZERO(10) MB_ZERO(11)
      MB_ZERO(12) MB_ZERO(13) MB_ZERO(14) MB_ZERO(15)
      "1:\n\t"
      MB_STEP_8(0) MB_STEP_8(1) MB_STEP_8(2) MB_STEP_8(3)
      MB_NEXT_STEPS
      MB_END(0, 24) MB_END(1, 24) MB_END(2, 24) MB_END(3, 24)
      MB_END(4, 24) MB_END(5, 24) MB_END(6, 24) MB_END(7, 24)
      MB_END(8, 25) MB_END(9, 25) MB_END(10, 25) MB_END(11, 25)
      MB_END(12, 25) MB_END(13, 25) MB_END(14, 25) MB_END(15, 25)
      : [x] "+r"(x), [p] "+r"(panel)
      : [end] "r"(g.panel + g.pairs * 2 * kLanes), [r1] "r"(r), [r3] "r"(3 * r), [r5] "r"(5 * r), [r7] "r"(7 * r),
        [s] "r"(g.scales), [seg] "r"(g.segment), [next] "i"(kNext)
      : "cc", "memory", MB_CLOBBERS);
}

template <int64_t kNext>
inline void multiply_pair_4(const PairGroup& g) {
  const uint8_t* x = g.x;
  const int16_t* panel = g.panel;
  const int64_t r = g.stride;
  __asm__ volatile(
      MB_ZERO(0) MB_ZERO(1) MB_ZERO(2) MB_ZERO(3)
      MB_ZERO(4) MB_ZERO(5) MB_ZERO(6) MB_ZERO(7)
      "1:\n\t"
      MB_STEP_4(0) MB_STEP_4(1) MB_STEP_4(2) MB_STEP_4(3)
      MB_NEXT_STEPS
      MB_END(0, 24) MB_END(1, 24) MB_END(2, 24) MB_END(3, 24)
      MB_END(4, 25) MB_END(5, 25) MB_END(6, 25) MB_END(7, 25)
      : [x] "+r"(x), [p] "+r"(panel)
      : [end] "r"(g.panel + g.pairs * 2 * kLanes), [r1] "r"(r), [r3] "r"(3 * r),
        [s] "r"(g.scales), [seg] "r"(g.segment), [next] "i"(kNext)
      : "cc", "memory", MB_CLOBBERS);
}
#undef MB_CLOBBERS
#undef MB_NEXT_STEPS
#undef MB_END
#undef MB_ZERO
#undef MB_STEP_4
#undef MB_STEP_8
#undef MB_STEP_12
#undef MB_PANELS
#undef MB_ROW
// clang-format on

}  // namespace
}  // namespace markbase::backends::cpu

#endif
