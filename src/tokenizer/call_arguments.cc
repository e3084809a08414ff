#include "tokenizer/call_arguments.h"

#include "base/error.h"
#include "base/json.h"
#include "base/repeated_key.h"
#include "tokenizer/jinja/json_value.h"

namespace markbase::tokenizer {
namespace {

using jinja::Dict;
using jinja::Type;
using jinja::Value;

const Value* member(const Value& value, std::string_view key, Type type) {
  const Value* found = value.is(Type::kDict) ? value.dict->find(key) : nullptr;
  return found != nullptr && found->is(type) ? found : nullptr;
}

std::string_view json_type(const Value& value) {
  if (value.is(Type::kList)) return "array";
  return value.is(Type::kBool) ? "boolean" : "number";
}

Error not_an_object(std::string_view what, std::string_view got) {
  return base::usage_error("{}: expected object, got {}", what, got);
}

Result<Value> object_in(const Value& text, const std::string& what, jinja::Arena& arena) {
  const Result<base::Json> json = base::parse_json(text.view(), what);
  if (!json.ok()) return Error{ErrorCode::kUsage, json.error().message};
  if (!json->is_object()) return not_an_object(what, json->type_name());
  MB_TRY(base::check_no_repeated_key(text.view(), what));
  Result<Value> object = jinja::value_from_json(text.view(), what, arena);
  if (!object.ok()) return Error{ErrorCode::kUsage, object.error().message};
  return object;
}

Result<void> read_arguments(Dict& function, jinja::Arena& arena) {
  const Value* arguments = function.find("arguments");
  if (arguments == nullptr || arguments->is(Type::kNone) || arguments->is(Type::kDict)) return {};
  const Value* name = function.find("name");
  const std::string what =
      fmt::format("arguments of '{}'", name != nullptr && name->is_string() ? name->view() : "");
  if (!arguments->is_string()) return not_an_object(what, json_type(*arguments));
  MB_ASSIGN(const Value object, object_in(*arguments, what, arena));
  function.set(arena.string("arguments", jinja::Origin::kMessage), object);
  return {};
}

}  // namespace

Result<void> read_call_arguments(ChatRequest& request) {
  if (!request.messages.is(Type::kList)) return {};
  for (const Value& message : request.messages.list->items) {
    const Value* calls = member(message, "tool_calls", Type::kList);
    if (calls == nullptr) continue;
    for (const Value& call : calls->list->items) {
      const Value* function = member(call, "function", Type::kDict);
      if (function != nullptr) MB_TRY(read_arguments(*function->dict, *request.arena));
    }
  }
  return {};
}

}  // namespace markbase::tokenizer
