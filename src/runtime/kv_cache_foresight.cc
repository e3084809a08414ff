// What a cache would have room for if some of its sequences were closed and a new one came.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "runtime/kv_cache.h"

namespace markbase::runtime {

int64_t KvCache::foresee(const Newcomer& newcomer, std::span<const int> closing,
                         std::span<int64_t> available) {
  MB_CHECK(available.size() == closing.size() + 1);
  std::fill(available.begin(), available.end(), std::numeric_limits<int64_t>::max());
  const PrefixCache::Place border = border_for(newcomer.ids);
  const bool shares = border.blocks == 0 && newcomer.beside >= 0;
  const auto source = static_cast<size_t>(newcomer.beside);
  const int64_t blocks = shares ? blocks_to_share(source, newcomer.common) : border.blocks;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].shape.window > 0) continue;
    const auto prefix = std::span(spare_row_).first(static_cast<size_t>(blocks));
    if (shares) {
      std::copy_n(kinds_[i].row(source).begin(), blocks, prefix.begin());
    } else if (blocks > 0) {
      prefixes_.read_row(border, i, prefix);
    }
    foresee_kind(i, prefix, closing, available);
  }
  return blocks * ops::kKvBlockTokens;
}

// A block becomes available with the last sequence that holds it; those of the prefix have a holder
// that stays, the newcomer.
void KvCache::foresee_kind(size_t kind_idx, std::span<const int32_t> prefix,
                           std::span<const int> closing, std::span<int64_t> available) {
  constexpr int32_t kStays = std::numeric_limits<int32_t>::min() / 2;
  Kind& kind = kinds_[kind_idx];
  const auto gone = [&](int32_t block) -> int32_t& { return gone_[static_cast<size_t>(block)]; };
  const auto held_by = [&](int sequence) {
    const Held& held = kind.held[static_cast<size_t>(sequence)];
    return kind.row(static_cast<size_t>(sequence))
        .subspan(static_cast<size_t>(held.begin), static_cast<size_t>(held.end - held.begin));
  };
  int64_t blocks = kind.pool.num_free() + prefixes_.num_evictable(kind_idx);
  const auto note = [&](size_t num_closed) {
    available[num_closed] = std::min(available[num_closed], blocks * ops::kKvBlockTokens);
  };
  for (const int32_t block : prefix) {
    if (prefixes_.is_kept(kind_idx, block)) --blocks;
    gone(block) = kStays;
  }
  note(0);
  for (size_t n = 0; n < closing.size(); ++n) {
    for (const int32_t block : held_by(closing[n])) {
      const int32_t others = ++gone(block);
      const bool was_last = kind.pool.num_holders(block) == others;
      if (was_last || prefixes_.is_kept(kind_idx, block, others)) ++blocks;
    }
    note(n + 1);
  }
  for (const int32_t block : prefix) gone(block) = 0;
  for (const int sequence : closing) {
    for (const int32_t block : held_by(sequence)) gone(block) = 0;
  }
}

}  // namespace markbase::runtime
