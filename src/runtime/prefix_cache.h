// Prefixes of tokens whose keys and values are kept for later sequences. Knows ids and block
// numbers; what the blocks hold is others' business.
//
// A tree: an edge is the ids of one block, compared one by one (a hash finds, and is never
// trusted); a node is the prefix that ends there and holds the last block of it in each full kind
// of layer. A node where a prefix was kept is a border: it holds, for each sliding kind, the blocks
// inside the window before it as well, and only there can a sequence go on. Where no kind slides,
// every node is a border. A node without a border at or below it serves nobody and goes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/kv_cache.h"
#include "runtime/block_pool.h"

namespace markbase::runtime {

// Blocks below `blocks` that a row at that border or beyond sees first: 0 for a full kind.
constexpr int64_t first_block_seen(int64_t blocks, int64_t window) {
  if (window == 0) return 0;
  const int64_t inside = (window - 1 + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
  return blocks > inside ? blocks - inside : 0;
}

// Not thread safe. Finding and evicting allocate nothing.
class PrefixCache {
 public:
  struct Kind {
    BlockPool* pool = nullptr;
    int64_t window = 0;  // 0: a full kind
  };
  // Called when the last holder of a block was the cache.
  using OnFreed = std::function<void(size_t kind_idx, int32_t block)>;

  // A node of the tree, as long as it is there.
  struct Place {
    int32_t node = 0;  // the root: no token
    uint64_t serial = 0;
    int64_t blocks = 0;
  };

  // `most_borders`: borders that hold windows at a time; 0: nothing is kept. `hash_mask`: bits of
  // the hashes that are used; with few of them much is found that is something else, for tests.
  PrefixCache(std::vector<Kind> kinds, int64_t most_borders, OnFreed on_freed,
              uint64_t hash_mask = ~uint64_t{0});

  // The deepest border on the path of `ids` within the first `most_blocks` blocks, which counts as
  // used. The root where there is none.
  Place find(std::span<const int32_t> ids, int64_t most_blocks);
  // The same, and it does not count as used.
  Place look_up(std::span<const int32_t> ids, int64_t most_blocks) const;
  // How far the path of `ids` is there at all, in blocks.
  int64_t matched_blocks(std::span<const int32_t> ids) const;
  // The blocks of a border in one kind: [first_block_seen, blocks) of `row` are set, no holder is
  // added.
  void read_row(const Place& border, size_t kind_idx, std::span<int32_t> row) const;

  // Makes the prefix of ids.size() / 64 blocks a border. rows[kind][i] is block i of a sequence,
  // which holds [first_block_seen, ids.size() / 64) of each kind. `place`: where the sequence was
  // before, at most this deep: the ids up to there are not looked at again; it is moved on. What is
  // kept already stays and the sequence keeps its own. The border not used for longest makes way
  // for one too many. On an exception (no memory) nothing new is kept.
  void keep(std::span<const int32_t> ids, std::span<const std::span<const int32_t>> rows,
            Place* place);

  // Drops what holds blocks of the kind and was not used for longest: the window of a border, or a
  // leaf, one that frees its block where there is such. False: nothing is left.
  bool evict(size_t kind_idx);
  void drop_all();

  // Whether a block is held by the cache, and by nobody else but so many others.
  bool is_kept(size_t kind_idx, int32_t block, int64_t other_holders = 0) const;
  // Blocks that evicting alone would free.
  int64_t num_evictable(size_t kind_idx) const;
  int64_t num_nodes() const { return num_nodes_; }
  int64_t num_borders() const { return num_borders_; }
  int64_t most_borders() const { return most_borders_; }
  bool slides() const { return slides_; }  // whether any kind does

  // --- for files ---
  struct Entry {
    int32_t parent = -1;  // index of an entry before this one, -1: the root
    bool is_border = false;
    uint64_t last_use = 0;
    std::span<const int32_t> ids;      // of its block
    std::span<const int32_t> blocks;   // one a full kind
    std::span<const int32_t> windows;  // of a border: kind after kind, from the first block seen
  };
  // Valid until the cache changes.
  std::vector<Entry> entries() const;
  // The child of `parent` under these 64 ids, or -1.
  int32_t find_child(int32_t parent, std::span<const int32_t> ids) const;
  bool is_border(int32_t node) const { return at(node).is_border; }
  // A child that is not there yet. It is useless until something at or below it becomes a border.
  // This and make_border have the strong guarantee.
  int32_t add_child(int32_t parent, std::span<const int32_t> ids, std::span<const int32_t> blocks);
  // Precondition: not a border yet.
  void make_border(int32_t node, std::span<const int32_t> windows);
  // Everything on the way to a node counts as used now.
  void touch(int32_t node);

  static constexpr int32_t kRoot = 0;

 private:
  struct Node {
    std::array<int32_t, ops::kKvBlockTokens> ids;
    int32_t parent = kRoot;
    int32_t num_children = 0;
    bool is_used = false;  // otherwise the slot is free
    bool is_border = false;
    int64_t depth = 0;  // in blocks
    uint64_t serial = 0;
    uint64_t hash = 0;
    uint64_t last_use = 0;
    std::vector<int32_t> blocks;
    std::vector<int32_t> windows;
  };

  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  // Room for one node more than are used.
  void make_slot();
  // Goes on from a node to that of `ids`, and makes what is not there; `rows` as keep has them. On
  // an exception the node is as far as it went.
  void extend(std::span<const int32_t> ids, std::span<const std::span<const int32_t>> rows,
              int32_t* node);
  void keep_windows(int32_t node, std::span<const std::span<const int32_t>> rows);
  Place place_of(int32_t node) const { return {node, at(node).serial, at(node).depth}; }
  bool is_there(const Place& place) const;
  uint64_t hash_of(int32_t parent, std::span<const int32_t> ids) const;
  void hold(size_t kind_idx, int32_t block);
  void drop(size_t kind_idx, int32_t block);
  void drop_windows(int32_t node);
  void remove(int32_t node);
  void remove_useless(int32_t node);
  // -1: none. `spared`: a border that stays.
  int32_t oldest_border(int32_t spared) const;
  int32_t oldest_leaf(size_t kind_idx, bool must_free) const;
  bool frees(const Node& node, size_t kind_idx) const;

  std::vector<Kind> kinds_;
  std::vector<size_t> full_idx_;            // place of a full kind among Node::blocks
  std::vector<std::vector<int32_t>> kept_;  // [kind][block]: how often it is held here
  int64_t most_borders_;
  bool slides_ = false;
  OnFreed on_freed_;
  uint64_t hash_mask_;
  std::vector<Node> nodes_;      // the root first
  std::vector<int32_t> unused_;  // slots; has room for all, so that evicting allocates nothing
  std::unordered_multimap<uint64_t, int32_t> children_;  // by parent and ids
  int64_t num_nodes_ = 0;                                // the root apart
  int64_t num_borders_ = 0;
  uint64_t clock_ = 0;
  uint64_t serials_ = 0;
};

}  // namespace markbase::runtime
