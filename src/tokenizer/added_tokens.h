// Finds added tokens in a text: at one position the longest wins.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace markbase::tokenizer {

// A trie over bytes in flat arrays; immutable after construction. A search costs at most the length
// of the longest token.
class AddedTokens {
 public:
  struct Entry {
    std::string_view content;  // not empty, each once; needs to live only during construction
    int32_t id = 0;
    bool special = false;
  };
  struct Match {
    int32_t id = -1;
    size_t length = 0;
    bool special = false;
  };

  explicit AddedTokens(std::vector<Entry> entries);

  bool may_begin(char byte) const { return first_[static_cast<uint8_t>(byte)] >= 0; }
  // The longest token that `text` begins with, special ones only up to `special_limit` bytes; id
  // -1: none.
  Match longest(std::string_view text, size_t special_limit) const;

 private:
  struct Node {
    int32_t id = -1;  // of the token that ends here
    uint32_t first_child = 0;
    uint16_t num_children = 0;  // they follow one another, sorted by byte
    uint8_t byte = 0;
    bool special = false;
  };
  int32_t child(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_;  // the child of the root, -1 none
};

}  // namespace markbase::tokenizer
