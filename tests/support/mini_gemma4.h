// A vocabulary with Gemma 4's control tokens, all bytes and a few pieces.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace markbase::testing {

std::unique_ptr<tokenizer::Tokenizer> mini_gemma4(const std::string& chat_template = {});

}  // namespace markbase::testing
