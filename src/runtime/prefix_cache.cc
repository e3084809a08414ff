#include "runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/content_hash.h"

namespace markbase::runtime {
namespace {

constexpr auto kBlockIds = static_cast<size_t>(ops::kKvBlockTokens);

std::span<const int32_t> ids_of_block(std::span<const int32_t> ids, int64_t block) {
  return ids.subspan(static_cast<size_t>(block) * kBlockIds, kBlockIds);
}

}  // namespace

PrefixCache::PrefixCache(std::vector<Kind> kinds, int64_t most_borders, OnFreed on_freed,
                         uint64_t hash_mask)
    : kinds_(std::move(kinds)),
      most_borders_(most_borders),
      on_freed_(std::move(on_freed)),
      hash_mask_(hash_mask),
      nodes_(1) {
  size_t num_full = 0;
  for (const Kind& kind : kinds_) {
    full_idx_.push_back(kind.window == 0 ? num_full++ : 0);
    kept_.emplace_back(static_cast<size_t>(kind.pool->num_blocks()), 0);
    slides_ = slides_ || kind.window > 0;
  }
  nodes_[kRoot].is_used = true;
}

bool PrefixCache::is_there(const Place& place) const {
  return place.node < static_cast<int32_t>(nodes_.size()) && at(place.node).is_used &&
         at(place.node).serial == place.serial;
}

uint64_t PrefixCache::hash_of(int32_t parent, std::span<const int32_t> ids) const {
  return content_hash(std::as_bytes(ids), at(parent).serial) & hash_mask_;
}

int32_t PrefixCache::find_child(int32_t parent, std::span<const int32_t> ids) const {
  const auto [begin, end] = children_.equal_range(hash_of(parent, ids));
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    const Node& node = at(entry.second);
    return node.parent == parent && std::equal(ids.begin(), ids.end(), node.ids.begin());
  });
  return found == end ? -1 : found->second;
}

void PrefixCache::touch(int32_t node) {
  ++clock_;
  for (; node != kRoot; node = at(node).parent) at(node).last_use = clock_;
}

PrefixCache::Place PrefixCache::look_up(std::span<const int32_t> ids, int64_t most_blocks) const {
  int32_t node = kRoot;
  int32_t border = kRoot;
  for (int64_t block = 0; block < most_blocks; ++block) {
    node = find_child(node, ids_of_block(ids, block));
    if (node < 0) break;
    if (at(node).is_border) border = node;
  }
  return place_of(border);
}

PrefixCache::Place PrefixCache::find(std::span<const int32_t> ids, int64_t most_blocks) {
  const Place border = look_up(ids, most_blocks);
  touch(border.node);
  return border;
}

int64_t PrefixCache::matched_blocks(std::span<const int32_t> ids) const {
  const auto most = static_cast<int64_t>(ids.size() / kBlockIds);
  int32_t node = kRoot;
  int64_t blocks = 0;
  while (blocks < most && (node = find_child(node, ids_of_block(ids, blocks))) >= 0) ++blocks;
  return blocks;
}

void PrefixCache::read_row(const Place& border, size_t kind_idx, std::span<int32_t> row) const {
  MB_CHECK(is_there(border));
  if (kinds_[kind_idx].window == 0) {
    for (int32_t node = border.node; node != kRoot; node = at(node).parent) {
      row[static_cast<size_t>(at(node).depth - 1)] = at(node).blocks[full_idx_[kind_idx]];
    }
    return;
  }
  auto next = at(border.node).windows.begin();
  for (size_t i = 0; i <= kind_idx; ++i) {
    if (kinds_[i].window == 0) continue;
    const int64_t first = first_block_seen(border.blocks, kinds_[i].window);
    if (i == kind_idx) std::copy_n(next, border.blocks - first, row.begin() + first);
    next += border.blocks - first;
  }
}

void PrefixCache::hold(size_t kind_idx, int32_t block) {
  kinds_[kind_idx].pool->hold(block);
  ++kept_[kind_idx][static_cast<size_t>(block)];
}

void PrefixCache::drop(size_t kind_idx, int32_t block) {
  --kept_[kind_idx][static_cast<size_t>(block)];
  if (kinds_[kind_idx].pool->drop(block)) on_freed_(kind_idx, block);
}

void PrefixCache::make_slot() {
  if (!unused_.empty()) return;
  if (nodes_.size() == nodes_.capacity()) {
    const size_t capacity = 2 * nodes_.capacity();
    unused_.reserve(capacity);
    nodes_.reserve(capacity);
  }
  nodes_.emplace_back();
  unused_.push_back(static_cast<int32_t>(nodes_.size()) - 1);
}

int32_t PrefixCache::add_child(int32_t parent, std::span<const int32_t> ids,
                               std::span<const int32_t> blocks) {
  MB_CHECK(ids.size() == kBlockIds);
  // What can fail comes first.
  make_slot();
  const int32_t idx = unused_.back();
  std::vector<int32_t> own_blocks(blocks.begin(), blocks.end());
  const uint64_t hash = hash_of(parent, ids);
  children_.emplace(hash, idx);
  unused_.pop_back();
  Node& node = at(idx);
  node = Node();
  std::copy(ids.begin(), ids.end(), node.ids.begin());
  node.parent = parent;
  node.is_used = true;
  node.depth = at(parent).depth + 1;
  node.serial = ++serials_;
  node.hash = hash;
  node.last_use = clock_;
  node.blocks = std::move(own_blocks);
  ++at(parent).num_children;
  ++num_nodes_;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].window == 0) hold(i, node.blocks[full_idx_[i]]);
  }
  if (!slides_) make_border(idx, {});
  return idx;
}

void PrefixCache::make_border(int32_t idx, std::span<const int32_t> windows) {
  Node& node = at(idx);
  MB_CHECK(!node.is_border);
  node.windows = std::vector<int32_t>(windows.begin(), windows.end());
  node.is_border = true;
  ++num_borders_;
  auto next = node.windows.begin();
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].window == 0) continue;
    for (int64_t n = node.depth - first_block_seen(node.depth, kinds_[i].window); n-- > 0; ++next) {
      hold(i, *next);
    }
  }
  MB_CHECK(next == node.windows.end());
}

void PrefixCache::extend(std::span<const int32_t> ids,
                         std::span<const std::span<const int32_t>> rows, int32_t* node) {
  const auto blocks = static_cast<int64_t>(ids.size() / kBlockIds);
  std::vector<int32_t> found;
  for (int64_t block = at(*node).depth; block < blocks; ++block) {
    const std::span<const int32_t> own_ids = ids_of_block(ids, block);
    int32_t child = find_child(*node, own_ids);
    if (child < 0) {
      found.clear();
      for (size_t i = 0; i < kinds_.size(); ++i) {
        if (kinds_[i].window == 0) found.push_back(rows[i][static_cast<size_t>(block)]);
      }
      child = add_child(*node, own_ids, found);
    }
    *node = child;
  }
}

void PrefixCache::keep_windows(int32_t node, std::span<const std::span<const int32_t>> rows) {
  const int64_t blocks = at(node).depth;
  std::vector<int32_t> windows;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].window == 0) continue;
    const int64_t first = first_block_seen(blocks, kinds_[i].window);
    windows.insert(windows.end(), rows[i].begin() + first, rows[i].begin() + blocks);
  }
  make_border(node, windows);
}

void PrefixCache::keep(std::span<const int32_t> ids, std::span<const std::span<const int32_t>> rows,
                       Place* place) {
  const auto blocks = static_cast<int64_t>(ids.size() / kBlockIds);
  if (most_borders_ == 0 || blocks == 0) return;
  if (!is_there(*place) || place->blocks > blocks) *place = {};
  int32_t node = place->node;
  bool is_new = false;  // with windows of its own
  try {
    extend(ids, rows, &node);
    is_new = !at(node).is_border;
    if (is_new) keep_windows(node, rows);
  } catch (...) {
    *place = {};
    remove_useless(node);
    throw;
  }
  touch(node);
  *place = place_of(node);
  while (is_new && num_borders_ > most_borders_) {
    const int32_t oldest = oldest_border(node);
    drop_windows(oldest);
    remove_useless(oldest);
  }
}

void PrefixCache::drop_windows(int32_t idx) {
  Node& node = at(idx);
  if (!node.is_border) return;
  auto next = node.windows.begin();
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].window == 0) continue;
    for (int64_t n = node.depth - first_block_seen(node.depth, kinds_[i].window); n-- > 0; ++next) {
      drop(i, *next);
    }
  }
  node.windows.clear();
  node.is_border = false;
  --num_borders_;
}

void PrefixCache::remove(int32_t idx) {
  MB_CHECK(idx != kRoot && at(idx).num_children == 0);
  drop_windows(idx);
  Node& node = at(idx);
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].window == 0) drop(i, node.blocks[full_idx_[i]]);
  }
  const auto [begin, end] = children_.equal_range(node.hash);
  children_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == idx; }));
  --at(node.parent).num_children;
  --num_nodes_;
  node.is_used = false;
  unused_.push_back(idx);
}

void PrefixCache::remove_useless(int32_t node) {
  while (node != kRoot && !at(node).is_border && at(node).num_children == 0) {
    const int32_t parent = at(node).parent;
    remove(node);
    node = parent;
  }
}

// On one path all were used at once: the shallower one goes, of which less is lost.
int32_t PrefixCache::oldest_border(int32_t spared) const {
  int32_t oldest = -1;
  for (int32_t i = 1; i < static_cast<int32_t>(nodes_.size()); ++i) {
    const Node& node = at(i);
    if (!node.is_used || !node.is_border || i == spared) continue;
    if (oldest < 0 ||
        std::pair(node.last_use, node.depth) < std::pair(at(oldest).last_use, at(oldest).depth)) {
      oldest = i;
    }
  }
  return oldest;
}

bool PrefixCache::frees(const Node& node, size_t kind_idx) const {
  return is_kept(kind_idx, node.blocks[full_idx_[kind_idx]]);
}

int32_t PrefixCache::oldest_leaf(size_t kind_idx, bool must_free) const {
  int32_t oldest = -1;
  for (int32_t i = 1; i < static_cast<int32_t>(nodes_.size()); ++i) {
    const Node& node = at(i);
    if (!node.is_used || node.num_children > 0) continue;
    if (oldest >= 0 && node.last_use >= at(oldest).last_use) continue;
    if (!must_free || frees(node, kind_idx)) oldest = i;
  }
  return oldest;
}

bool PrefixCache::evict(size_t kind_idx) {
  if (kinds_[kind_idx].window > 0) {
    const int32_t border = oldest_border(-1);
    if (border < 0) return false;
    drop_windows(border);
    remove_useless(border);
    return true;
  }
  int32_t leaf = oldest_leaf(kind_idx, /*must_free=*/true);
  // What is left is held by sequences, or stands above what they hold.
  if (leaf < 0) leaf = oldest_leaf(kind_idx, /*must_free=*/false);
  if (leaf < 0) return false;
  const int32_t parent = at(leaf).parent;
  remove(leaf);
  remove_useless(parent);
  return true;
}

void PrefixCache::drop_all() {
  // A leaf always exists while there are nodes; each pass takes at least all of them.
  while (num_nodes_ > 0) {
    for (int32_t i = static_cast<int32_t>(nodes_.size()); i-- > 1;) {
      if (at(i).is_used && at(i).num_children == 0) remove(i);
    }
  }
}

bool PrefixCache::is_kept(size_t kind_idx, int32_t block, int64_t other_holders) const {
  const int32_t kept = kept_[kind_idx][static_cast<size_t>(block)];
  return kept > 0 && kinds_[kind_idx].pool->num_holders(block) == kept + other_holders;
}

int64_t PrefixCache::num_evictable(size_t kind_idx) const {
  int64_t count = 0;
  for (int64_t block = 0; block < kinds_[kind_idx].pool->num_blocks(); ++block) {
    if (is_kept(kind_idx, static_cast<int32_t>(block))) ++count;
  }
  return count;
}

std::vector<PrefixCache::Entry> PrefixCache::entries() const {
  std::vector<int32_t> order;
  for (int32_t i = 1; i < static_cast<int32_t>(nodes_.size()); ++i) {
    if (at(i).is_used) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return at(a).depth < at(b).depth; });
  std::vector<int32_t> entry_of(nodes_.size(), -1);
  std::vector<Entry> entries;
  for (const int32_t idx : order) {
    const Node& node = at(idx);
    entry_of[static_cast<size_t>(idx)] = static_cast<int32_t>(entries.size());
    entries.push_back({entry_of[static_cast<size_t>(node.parent)], node.is_border, node.last_use,
                       node.ids, node.blocks, node.windows});
  }
  return entries;
}

}  // namespace markbase::runtime
