// The tokenizer room's object behind the public Tokenizer.
#pragma once

#include "markbase/tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace markbase {

class TokenizerAccess {
 public:
  static const tokenizer::Tokenizer& inner(const Tokenizer& tokenizer);
};

}  // namespace markbase
