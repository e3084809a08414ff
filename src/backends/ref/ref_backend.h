// The reference backend: every op in the plainest loops, accumulating in double. What tests compare
// with.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "ops/backend.h"

namespace markbase::backends {

// `pool` outlives the backend. Weights are decoded once to float32; outputs are spread over
// threads.
std::unique_ptr<ops::Backend> make_ref_backend(base::ThreadPool& pool);

}  // namespace markbase::backends
