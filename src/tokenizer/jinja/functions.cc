// The functions a template can call by name, and the arguments of calls.
#include <algorithm>
#include <ctime>
#include <limits>

#include "base/error.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

struct Entry {
  std::string_view name;
  Function function;
};
constexpr Entry kFunctions[] = {
    {"range", Function::kRange},
    {"namespace", Function::kNamespace},
    {"dict", Function::kDict},
    {"raise_exception", Function::kRaiseException},
    {"strftime_now", Function::kStrftimeNow},
};

Value make_range(Evaluator& eval, const Expr& at, const Arguments& args) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = args.positional.size();
  if (count < 1 || count > 3 || !args.named.empty())
    return eval.fail(at, "'range' takes one to three integers");
  for (size_t i = 0; i < count; ++i) {
    const Value& value = args.positional[i];
    if (!value.is_integer())
      return eval.fail(at, fmt::format("'range' takes integers, got a {}", type_name(value)));
    bounds[count == 1 ? 1 : i] = value.as_integer();
  }
  if (bounds[2] == 0) return eval.fail(at, "'range' cannot have the step 0");
  // Jinja's sandbox has this limit too.
  constexpr int64_t kMaxRange = 100000;
  const Range range{bounds[0], bounds[1], bounds[2]};
  if (range.size() > kMaxRange || range.size() < 0)
    return eval.fail(at, fmt::format("a range of more than {} numbers", kMaxRange));
  return eval.arena().range(range);
}

// dict(mapping or pairs, name=value, ...)
Value make_dict(Evaluator& eval, const Expr& at, const Arguments& args) {
  Value dict = eval.arena().dict();
  if (args.positional.size() > 1)
    return eval.fail(at, "expected at most one argument without a name");
  const auto set = [&](const Value& key, const Value& value) {
    if (!eval.spend(at, 1, 64)) return;
    if (!is_hashable(key)) {
      eval.fail(at, fmt::format("a {} cannot be a key", type_name(key)));
      return;
    }
    if (!eval.spend_lookup(at, dict, key)) return;
    dict.dict->set(key, value);
  };
  if (!args.positional.empty() && args.positional[0].is(Type::kDict)) {
    for (const auto& [key, value] : args.positional[0].dict->items) set(key, value);
  } else if (!args.positional.empty()) {
    for (const Value& pair : eval.items_of(at, args.positional[0])) {
      const std::vector<Value>& items = eval.items_of(at, pair);
      if (eval.failed()) return {};
      if (items.size() != 2) return eval.fail(at, "expected pairs of a key and a value");
      set(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : args.named) set(eval.string(name), value);
  return dict;
}

Value make_namespace(Evaluator& eval, const Expr& at, const Arguments& args) {
  const Value dict = make_dict(eval, at, args);
  if (eval.failed()) return {};
  Value names = eval.arena().names();
  for (const auto& [key, value] : dict.dict->items) {
    if (!key.is_string()) continue;  // Python keeps it, and no attribute reaches it
    if (key.view().starts_with('_'))
      return eval.fail(at, fmt::format("'{}': an attribute must not begin with '_'", key.view()));
    names.names->items.emplace_back(key.text, value);
  }
  return names;
}

Value format_now(Evaluator& eval, const Expr& at, const Arguments& args) {
  if (args.positional.size() != 1 || !args.positional[0].is_string())
    return eval.fail(at, "'strftime_now' takes a text");
  constexpr int64_t kSteps = 64;  // about a microsecond for each of a dozen fields
  constexpr size_t kMaxFormatBytes = 256;
  const std::string format(args.positional[0].view());
  if (format.size() > kMaxFormatBytes || !eval.spend(at, kSteps))
    return eval.fail(
        at, fmt::format("'strftime_now': a format of more than {} bytes", kMaxFormatBytes));
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[512];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &local);
  if ((size == 0 && !format.empty()) || !is_valid_utf8({buffer, size}))
    return eval.fail(at, "'strftime_now': the date does not fit or is no text");
  return eval.string({buffer, size});
}

}  // namespace

std::vector<Value> bind(Evaluator& eval, const Expr& at, const Arguments& args,
                        std::initializer_list<std::string_view> parameters, size_t num_required) {
  std::vector<Value> bound(parameters.size(), Value::missing());
  const size_t given = std::min(args.positional.size(), bound.size());
  std::copy_n(args.positional.begin(), given, bound.begin());
  if (args.positional.size() > bound.size())
    eval.fail(at, fmt::format("expected at most {} arguments, got {}", bound.size(),
                              args.positional.size()));
  for (const auto& [name, value] : args.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    const auto i = static_cast<size_t>(found - parameters.begin());
    if (found == parameters.end() || !bound[i].is(Type::kMissing)) {
      eval.fail(at, fmt::format("there is no argument '{}' here, or it is given twice", name));
    } else {
      bound[i] = value;
    }
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (bound[i].is(Type::kMissing))
      eval.fail(at, fmt::format("the argument '{}' is missing", *(parameters.begin() + i)));
  }
  return bound;
}

Value find_function(std::string_view name) {
  for (const Entry& entry : kFunctions) {
    if (entry.name != name) continue;
    Value value = Value::of(Type::kFunction);
    value.function = entry.function;
    return value;
  }
  return Value::missing();
}

Value call_function(Evaluator& eval, const Expr& at, Function function, Arguments& args) {
  switch (function) {
    case Function::kRange:
      return make_range(eval, at, args);
    case Function::kNamespace:
      return make_namespace(eval, at, args);
    case Function::kDict:
      return make_dict(eval, at, args);
    case Function::kStrftimeNow:
      return format_now(eval, at, args);
    case Function::kRaiseException: {
      if (args.positional.size() != 1) return eval.fail(at, "'raise_exception' takes a text");
      const Value text = eval.text_of(at, args.positional[0]);
      return eval.failed() ? Value() : eval.refuse(at, text.view());
    }
  }
  return {};
}

}  // namespace markbase::tokenizer::jinja
