#include "ops/kv_cache.h"

#include "ops/arg_checks.h"
#include "ops/attention.h"

namespace markbase::ops {
namespace {

void check_cache(const KvView& cache, const tensor::TensorView& x,
                 const tensor::TensorView& positions, const tensor::TensorView& sequences) {
  MB_CHECK_MSG(cache.layout.num_kv_heads > 0 && cache.layout.head_dim > 0,
               "cache layout needs heads and a head_dim");
  MB_CHECK_MSG(cache.blocks != nullptr, "cache needs its blocks");
  const tensor::TensorView& table = cache.block_table;
  MB_CHECK_MSG(is_type(table, tensor::DType::kI32, 2) && table.dim(1) > 0 &&
                   (table.dim(1) == 1 || table.stride[1] == 1),
               "block_table must be [sequences, blocks] i32");
  MB_CHECK_MSG(is_vector(positions, tensor::DType::kI32, x.dim(0)),
               "positions must be [tokens] i32");
  MB_CHECK_MSG(is_vector(sequences, tensor::DType::kI32, x.dim(0)),
               "sequences must be [tokens] i32");
  MB_CHECK_MSG(same_device(x, table) && same_device(x, positions) && same_device(x, sequences),
               "cache, positions and sequences must be on the device of the tokens");
}

}  // namespace

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kF32:
      return "f32";
    case KvType::kQ8:
      return "q8";
  }
  MB_CHECK_MSG(false, "unknown KvType");
}

void check(const KvWriteArgs& args) {
  MB_CHECK_MSG(is_f32_heads(args.k) && is_f32_heads(args.v),
               "kv_write k and v must be [tokens, num_kv_heads, head_dim] f32");
  MB_CHECK_MSG(same_shape(args.k, args.v), "kv_write k and v must have one shape");
  MB_CHECK_MSG(same_device(args.k, args.v), "kv_write k and v must be on one device");
  check_cache(args.cache, args.k, args.positions, args.sequences);
  MB_CHECK_MSG(args.k.dim(1) == args.cache.layout.num_kv_heads &&
                   args.k.dim(2) == args.cache.layout.head_dim,
               "kv_write k must have the heads and head_dim of the cache");
  MB_CHECK_MSG(is_vector(args.overflow, tensor::DType::kI32, 1),
               "kv_write overflow must be [1] i32");
  MB_CHECK_MSG(same_device(args.k, args.overflow), "kv_write overflow must be on the device of k");
}

void check(const AttentionArgs& args) {
  MB_CHECK_MSG(is_f32_heads(args.q) && is_f32_heads(args.y),
               "attention q and y must be [tokens, num_heads, head_dim] f32");
  MB_CHECK_MSG(same_shape(args.q, args.y), "attention q and y must have one shape");
  MB_CHECK_MSG(same_device(args.q, args.y), "attention q and y must be on one device");
  check_cache(args.cache, args.q, args.positions, args.sequences);
  MB_CHECK_MSG(args.q.dim(2) == args.cache.layout.head_dim,
               "attention q must have the head_dim of the cache");
  MB_CHECK_MSG(args.q.dim(1) % args.cache.layout.num_kv_heads == 0,
               "attention num_heads must be a multiple of num_kv_heads");
  MB_CHECK_MSG(args.window >= 0, "attention window must not be negative");
}

}  // namespace markbase::ops
