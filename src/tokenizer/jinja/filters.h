// Shared by the files of filters.
#pragma once

#include <string_view>

#include "tokenizer/jinja/evaluator.h"

namespace markbase::tokenizer::jinja {

struct FilterEntry {
  std::string_view name;
  Callable callable;
};

// Null: no such filter.
Callable find_sequence_filter(std::string_view name);

}  // namespace markbase::tokenizer::jinja
