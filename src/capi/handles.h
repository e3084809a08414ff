// What stands behind the handles of the C API.
#pragma once

#include <memory>
#include <vector>

#include "markbase/engine.h"
#include "markbase/markbase.h"
#include "markbase/tokenizer.h"

// NOLINTBEGIN(readability-identifier-naming): named in the C header.
struct mb_engine {
  markbase::Engine engine;
};

struct mb_request_handle {
  std::shared_ptr<markbase::RequestHandle> handle;
};

struct mb_tokenizer {
  markbase::Tokenizer tokenizer;
};

struct mb_completions {
  explicit mb_completions(std::vector<markbase::Completion> completions);

  std::vector<markbase::Completion> list;
  // [answer][token]: the likeliest, as the C API gives them.
  std::vector<std::vector<std::vector<mb_token_logprob>>> tops;
};
// NOLINTEND(readability-identifier-naming)
