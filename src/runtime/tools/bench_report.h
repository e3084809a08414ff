// What every document of bench has.
#pragma once

#include <string>

#include "base/json.h"
#include "runtime/loaded_model.h"

namespace markbase::runtime {

// The test of kind "load".
base::Json load_test(const LoadedModel& model);
// {"machine","model","tests"}
std::string bench_document(const LoadedModel& model, base::Json tests);

}  // namespace markbase::runtime
