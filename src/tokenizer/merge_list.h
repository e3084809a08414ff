// What both readers of merge lists share.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "markbase/result.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {

// No id above this is believed; Gemma has 262,144 of them.
inline constexpr int32_t kMaxTokenId = 1 << 22;

// "left right" at its one space; kBadInput names the merge.
Result<std::pair<std::string_view, std::string_view>> split_merge(std::string_view merge,
                                                                  size_t rank,
                                                                  std::string_view source);

// The ids of a merge; kBadInput when a part or the result is no piece. `joined` is working memory.
Result<Merge> resolve_merge(const Vocabulary& vocabulary, std::string_view left,
                            std::string_view right, size_t rank, std::string_view source,
                            std::string& joined);

}  // namespace markbase::tokenizer
