// Requests of the C API as the engine takes them, its events as the C API shows them.
#pragma once

#include <vector>

#include "markbase/engine.h"
#include "markbase/markbase.h"
#include "markbase/options.h"

namespace markbase::capi {

// Errors (kUsage): whatever the struct holds that is no request.
Result<Request> request_of(const mb_request* request);

// on_event may be NULL.
OnEvent event_callback(mb_on_event on_event, void* user);

mb_tool_call view_of(const ToolCall& call);
std::vector<mb_token_logprob> top_of(const TokenLogprobs& logprobs);
// `top` holds the likeliest of `logprobs`.
mb_token_logprobs view_of(const TokenLogprobs& logprobs, const std::vector<mb_token_logprob>& top);

}  // namespace markbase::capi
