#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace markbase::tokenizer {

AddedTokens::AddedTokens(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.content < b.content; });
  // Breadth first over ranges of the sorted list that share their first `depth` bytes, so the
  // children of a node lie next to one another.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Range> queue = {{0, 0, entries.size(), 0}};
  for (size_t next = 0; next < queue.size(); ++next) {
    Range range = queue[next];
    if (range.begin < range.end && entries[range.begin].content.size() == range.depth) {
      nodes_[range.node].id = entries[range.begin].id;
      nodes_[range.node].special = entries[range.begin].special;
      ++range.begin;
    }
    nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
    for (size_t i = range.begin; i < range.end;) {
      const char byte = entries[i].content[range.depth];
      size_t end = i + 1;
      while (end < range.end && entries[end].content[range.depth] == byte) ++end;
      Node node;
      node.byte = static_cast<uint8_t>(byte);
      nodes_.push_back(node);
      ++nodes_[range.node].num_children;
      queue.push_back({static_cast<uint32_t>(nodes_.size() - 1), i, end, range.depth + 1});
      i = end;
    }
  }
  nodes_.shrink_to_fit();
  for (int byte = 0; byte < 256; ++byte)
    first_[byte] = child(nodes_[0], static_cast<uint8_t>(byte));
}

int32_t AddedTokens::child(const Node& node, uint8_t byte) const {
  const auto begin = nodes_.begin() + node.first_child;
  const auto end = begin + node.num_children;
  const auto found =
      std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<int32_t>(found - nodes_.begin()) : -1;
}

AddedTokens::Match AddedTokens::longest(std::string_view text, size_t special_limit) const {
  Match best;
  if (text.empty()) return best;
  int32_t index = first_[static_cast<uint8_t>(text[0])];
  for (size_t length = 1; index >= 0; ++length) {
    const Node& node = nodes_[index];
    if (node.id >= 0 && (!node.special || length <= special_limit))
      best = {node.id, length, node.special};
    if (length >= text.size()) break;
    index = child(node, static_cast<uint8_t>(text[length]));
  }
  return best;
}

}  // namespace markbase::tokenizer
