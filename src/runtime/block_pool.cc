#include "runtime/block_pool.h"

#include "base/check.h"

namespace markbase::runtime {

BlockPool::BlockPool(int64_t num_blocks) : holders_(static_cast<size_t>(num_blocks), 0) {
  free_.reserve(holders_.size());
  for (int64_t block = num_blocks; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
}

int32_t BlockPool::take() {
  MB_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::hold(int32_t block) {
  int32_t& holders = holders_[static_cast<size_t>(block)];
  MB_CHECK(holders > 0);
  ++holders;
}

bool BlockPool::drop(int32_t block) {
  int32_t& holders = holders_[static_cast<size_t>(block)];
  MB_CHECK(holders > 0);
  if (--holders > 0) return false;
  free_.push_back(block);
  return true;
}

}  // namespace markbase::runtime
