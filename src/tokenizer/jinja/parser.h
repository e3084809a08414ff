// Source to tree.
#pragma once

#include <memory>
#include <string_view>

#include "markbase/result.h"
#include "tokenizer/jinja/ast.h"

namespace markbase::tokenizer::jinja {

// Errors (kBadInput) begin with line and column and say what was expected.
Result<std::unique_ptr<Tree>> parse(std::string_view source);

}  // namespace markbase::tokenizer::jinja
