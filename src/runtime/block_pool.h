// Blocks of one kind of layer, counted by who holds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace markbase::runtime {

// Block numbers 0 to num_blocks - 1. A block is free, or held by one or more holders (sequences,
// kept prefixes). Not thread safe. Allocates nothing after construction.
class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(holders_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  // A block with one holder; low numbers first, so that memory is touched from its beginning.
  // Precondition: num_free() > 0.
  int32_t take();
  // One holder more. Precondition: the block is held.
  void hold(int32_t block);
  // One holder less; true when it was the last and the block is free now.
  bool drop(int32_t block);
  int64_t num_holders(int32_t block) const { return holders_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> holders_;
  std::vector<int32_t> free_;
};

}  // namespace markbase::runtime
