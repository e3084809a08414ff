// The linear kernels of one instruction set, over the vector words included before.
#pragma once

#include "backends/cpu/kernels/linear_float-inl.h"
#include "backends/cpu/kernels/quantise-inl.h"

namespace markbase::backends::cpu {
namespace {

void fused_product(const GroupedArgs& args) {
  switch (args.format->codes) {
    case CodeKind::k2:
      return fused_blocks<CodeKind::k2>(args);
    case CodeKind::k3:
      return fused_blocks<CodeKind::k3>(args);
    case CodeKind::k4:
      return fused_blocks<CodeKind::k4>(args);
    case CodeKind::k5:
      return fused_blocks<CodeKind::k5>(args);
    case CodeKind::k6:
      return fused_blocks<CodeKind::k6>(args);
    case CodeKind::k8:
      return fused_blocks<CodeKind::k8>(args);
    case CodeKind::kTable4:
      return fused_blocks<CodeKind::kTable4>(args);
  }
}

void grouped(const GroupedArgs& args) {
  if (args.num_tokens <= kFusedTokens) return fused_product(args);
  panel_blocks(args);
}

}  // namespace
}  // namespace markbase::backends::cpu
