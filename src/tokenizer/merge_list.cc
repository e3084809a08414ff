#include "tokenizer/merge_list.h"

#include "base/error.h"

namespace markbase::tokenizer {

Result<std::pair<std::string_view, std::string_view>> split_merge(std::string_view merge,
                                                                  size_t rank,
                                                                  std::string_view source) {
  const size_t space = merge.find(' ');
  if (space == merge.npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != merge.npos) {
    return base::bad_input("{}: merge {} is '{}', expected two pieces with one space between them",
                           source, rank, merge);
  }
  return std::pair(merge.substr(0, space), merge.substr(space + 1));
}

Result<Merge> resolve_merge(const Vocabulary& vocabulary, std::string_view left,
                            std::string_view right, size_t rank, std::string_view source,
                            std::string& joined) {
  const auto missing = [&](std::string_view piece) {
    return base::bad_input("{}: merge {} ('{}' '{}'): '{}' is not in the vocabulary", source, rank,
                           left, right, piece);
  };
  Merge merge;
  merge.left = vocabulary.find_in_model(left);
  if (merge.left < 0) return missing(left);
  merge.right = vocabulary.find_in_model(right);
  if (merge.right < 0) return missing(right);
  joined.assign(left).append(right);
  merge.result = vocabulary.find_in_model(joined);
  if (merge.result < 0) return missing(joined);
  return merge;
}

}  // namespace markbase::tokenizer
