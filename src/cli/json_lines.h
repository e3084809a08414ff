// JSON objects from stdin or a file, one a line, each answered before the next is waited for.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::cli {

// Calls `handle` with every line that is not blank and prints what it returns as one line. `file`:
// empty or "-" for stdin. Errors: kBadInput with the number of the line where it is not JSON, no
// object, has a key that is none of `keys`, or one twice in an object, or `handle` refuses it.
Result<void> for_each_json_line(
    const std::string& file, std::span<const std::string_view> keys,
    const std::function<Result<std::string>(const base::Json&)>& handle);

// Errors: kUsage naming `keys` where `json` is no object; as check_keys.
Result<void> check_object(const base::Json& json, std::span<const std::string_view> keys);
// Errors: kUsage naming the first key of `object` that is none of `keys`, and the nearest that is.
Result<void> check_keys(const base::Json& object, std::span<const std::string_view> keys);

}  // namespace markbase::cli
