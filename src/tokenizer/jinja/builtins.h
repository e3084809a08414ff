// The filters, tests, functions and methods there are.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"

namespace markbase::tokenizer::jinja {

// What a call was given. For filters and tests the value they are applied to comes first.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

enum class Function : uint8_t { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

// Null: no such name.
Callable find_filter(std::string_view name);
Callable find_test(std::string_view name);

// A function by its name; kMissing when there is none.
Value find_function(std::string_view name);
Value call_function(Evaluator& eval, const Expr& at, Function function, Arguments& args);

// value.NAME where Python has such an attribute, in the sandbox that transformers uses: methods
// that would change the value are not there. kMissing: none.
Value find_method(Evaluator& eval, const Value& value, std::string_view name);
Value call_method(Evaluator& eval, const Expr& at, const Method& method, Arguments& args);

// The arguments of a call by parameter name, in the order of `parameters`; kMissing where not
// given. An error of the evaluator for too few (less than `num_required`), too many or unknown
// ones.
std::vector<Value> bind(Evaluator& eval, const Expr& at, const Arguments& args,
                        std::initializer_list<std::string_view> parameters, size_t num_required);

// json.dumps() as transformers' tojson calls it, without its HTML escapes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // -1: one line
  Text item_separator, key_separator;
};
Value to_json(Evaluator& eval, const Expr& at, const Value& value, const JsonStyle& style);

}  // namespace markbase::tokenizer::jinja
