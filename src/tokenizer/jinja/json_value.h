// JSON text as values: what Python's json.loads gives a template.
#pragma once

#include <string_view>

#include "markbase/result.h"
#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

// Integers stay integers, however long; of a key that is there twice the last value counts. Texts
// have the origin kMessage. Errors (kBadInput): not JSON, nested deeper than 256, a number that no
// double holds, an integer of more than 4,300 digits (Python's limit).
Result<Value> value_from_json(std::string_view json, std::string_view what, Arena& arena);

}  // namespace markbase::tokenizer::jinja
