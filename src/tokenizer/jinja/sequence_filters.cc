// The filters over sequences and dictionaries.
#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

bool is_on(const Value& value) { return !value.is(Type::kMissing) && is_true(value); }
bool is_given(const Value& value) { return !value.is(Type::kMissing) && !value.is(Type::kNone); }

// What a filter gives that Python has as a generator.
Value generator(Evaluator& eval, const Expr& at, std::vector<Value> items,
                Type type = Type::kGenerator) {
  const auto size = static_cast<int64_t>(items.size());
  return eval.spend(at, size / 4, size * 16 + 64) ? eval.arena().list(std::move(items), type)
                                                  : Value();
}

Value filter_list(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value"}, 1);
  if (eval.failed()) return {};
  return generator(eval, at, eval.items_of(at, bound[0]), Type::kList);
}

Value filter_first(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"seq"}, 1);
  if (eval.failed()) return {};
  const std::vector<Value>& items = eval.items_of(at, bound[0]);
  return items.empty() ? Value::undefined(&at) : items.front();
}
Value filter_last(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"seq"}, 1);
  if (eval.failed()) return {};
  if (bound[0].is(Type::kGenerator))
    return eval.fail(at, "a generator has no last item; make it a list");
  const std::vector<Value>& items = eval.items_of(at, bound[0]);
  return items.empty() ? Value::undefined(&at) : items.back();
}

Value filter_reverse(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value"}, 1);
  if (eval.failed()) return {};
  const std::vector<Value>& all = eval.items_of(at, bound[0]);
  if (eval.failed() || !eval.spend(at, static_cast<int64_t>(all.size()) / 4)) return {};
  std::vector<Value> items = all;
  std::reverse(items.begin(), items.end());
  if (!bound[0].is_string()) return generator(eval, at, std::move(items));
  Text out;
  for (const Value& item : items) append(out, *item.text);
  return eval.arena().string(std::move(out));
}

// Texts in lower case, all else as it is: how Jinja compares without case.
Value without_case(Evaluator& eval, const Expr& at, const Value& value) {
  if (!value.is_string()) return value;
  const auto size = static_cast<int64_t>(value.view().size());
  if (!eval.spend(at, size / 2, weight(*value.text) * 3)) return value;
  return eval.arena().string(to_case(*value.text, Case::kLower));
}

// value.a.0.b by "a.0.b"; an integer is an index.
Value by_path(Evaluator& eval, const Expr& at, Value value, const Value& path) {
  if (path.is_integer()) return eval.get_item(at, value, path);
  for (const Text& part : split(*path.text, ".", -1, false)) {
    if (eval.failed()) return {};
    const bool is_index = !part.bytes.empty() && part.bytes.size() < 10 &&
                          part.bytes.find_first_not_of("0123456789") == part.bytes.npos;
    const Value key = is_index ? Value::of(static_cast<int64_t>(std::stoll(part.bytes)))
                               : eval.arena().string(part);
    value = eval.get_item(at, value, key);
  }
  return value;
}
bool is_path(const Value& value) { return value.is_integer() || value.is_string(); }

// Items by their keys, stable.
std::vector<Value> sorted(Evaluator& eval, const Expr& at, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? eval.order(at, keys[b], keys[a]) < 0 : eval.order(at, keys[a], keys[b]) < 0;
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value filter_sort(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  if (eval.failed()) return {};
  const std::vector<Value>& items = eval.items_of(at, bound[0]);
  if (eval.failed() || !eval.spend(at, static_cast<int64_t>(items.size()))) return {};
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = is_path(bound[3]) ? by_path(eval, at, item, bound[3]) : item;
    if (!is_on(bound[2])) key = without_case(eval, at, key);
    if (eval.failed()) return {};
    keys.push_back(key);
  }
  return generator(eval, at, sorted(eval, at, items, keys, is_on(bound[1])), Type::kList);
}

Value filter_dictsort(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "case_sensitive", "by", "reverse"}, 1);
  if (eval.failed()) return {};
  if (bound[0].is_undefined()) return eval.fail(at, Evaluator::why_undefined(bound[0]));
  if (!bound[0].is(Type::kDict))
    return eval.fail(at, fmt::format("'dictsort' takes a dict, got a {}", type_name(bound[0])));
  const std::string_view by = bound[2].is_string() ? bound[2].view() : "key";
  if (by != "key" && by != "value") return eval.fail(at, "'dictsort' sorts by 'key' or 'value'");
  const auto size = static_cast<int64_t>(bound[0].dict->items.size());
  if (!eval.spend(at, size, size * 128)) return {};
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : bound[0].dict->items) {
    items.push_back(eval.arena().list({key, value}, Type::kTuple));
    const Value& sorts = by == "key" ? key : value;
    keys.push_back(is_on(bound[1]) ? sorts : without_case(eval, at, sorts));
  }
  if (eval.failed()) return {};
  return generator(eval, at, sorted(eval, at, items, keys, is_on(bound[3])), Type::kList);
}

Value filter_items(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value"}, 1);
  if (eval.failed()) return {};
  if (bound[0].is_undefined()) return generator(eval, at, {});
  if (!bound[0].is(Type::kDict))
    return eval.fail(at, fmt::format("'items' takes a dict, got a {}", type_name(bound[0])));
  Arguments none;
  const Value view = call_method(eval, at, Method{bound[0], "items"}, none);
  return eval.failed() ? Value() : generator(eval, at, view.list->items);
}

// Applies a filter or test by name to one value, with what follows the name as arguments.
Value apply(Evaluator& eval, const Expr& at, Callable callable, const Value& value,
            const Arguments& rest) {
  const auto copied = static_cast<int64_t>(rest.positional.size() + rest.named.size());
  if (!eval.spend(at, 1 + copied / 4)) return {};
  Arguments args = rest;
  args.positional.insert(args.positional.begin(), value);
  return callable(eval, at, args);
}

// The name at `place` and what stands after it.
Callable named(Evaluator& eval, const Expr& at, const Arguments& args, size_t place, bool is_test,
               Arguments& rest) {
  const Value& name = args.positional[place];
  Callable callable = nullptr;
  if (name.is_string()) callable = is_test ? find_test(name.view()) : find_filter(name.view());
  if (callable == nullptr) {
    eval.fail(at, name.is_string()
                      ? fmt::format("there is no {} '{}'", is_test ? "test" : "filter", name.view())
                      : std::string("expected the name of a filter or test"));
  }
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(place) + 1,
                         args.positional.end());
  rest.named = args.named;
  return callable;
}

// What map and its like walk over: nothing where the value is false, whatever it is.
const std::vector<Value>& items_if_true(Evaluator& eval, const Expr& at, const Value& value) {
  return eval.items_of(at, is_true(value) ? value : Value());
}

Value filter_map(Evaluator& eval, const Expr& at, Arguments& args) {
  const std::vector<Value>& items = items_if_true(eval, at, args.positional[0]);
  std::vector<Value> out;
  if (args.positional.size() == 1) {
    Arguments named_only;
    named_only.named = args.named;
    const auto bound = bind(eval, at, named_only, {"attribute", "default"}, 1);
    if (eval.failed()) return {};
    if (!is_path(bound[0])) return eval.fail(at, "'map': expected the name of an attribute");
    for (const Value& item : items) {
      const Value value = by_path(eval, at, item, bound[0]);
      if (!eval.spend(at, 1)) return {};
      out.push_back(value.is_undefined() && is_given(bound[1]) ? bound[1] : value);
    }
    return generator(eval, at, std::move(out));
  }
  Arguments rest;
  Callable callable = named(eval, at, args, 1, false, rest);
  for (const Value& item : items) {
    if (eval.failed()) return {};
    out.push_back(apply(eval, at, callable, item, rest));
  }
  return eval.failed() ? Value() : generator(eval, at, std::move(out));
}

// select, reject (by the item) and selectattr, rejectattr (by an attribute of it).
Value choose(Evaluator& eval, const Expr& at, const Arguments& args, bool by_attribute, bool keep) {
  const std::vector<Value>& items = items_if_true(eval, at, args.positional[0]);
  const size_t place = by_attribute ? 2 : 1;
  if (by_attribute && (args.positional.size() < 2 || !is_path(args.positional[1])))
    return eval.fail(at, fmt::format("'{}' takes the name of an attribute", at.text->bytes));
  Arguments rest;
  Callable callable = nullptr;
  if (args.positional.size() > place) callable = named(eval, at, args, place, true, rest);
  std::vector<Value> out;
  for (const Value& item : items) {
    if (eval.failed() || !eval.spend(at, 1)) return {};
    Value value = by_attribute ? by_path(eval, at, item, args.positional[1]) : item;
    if (callable != nullptr) value = apply(eval, at, callable, value, rest);
    if (is_true(value) == keep) out.push_back(item);
  }
  return eval.failed() ? Value() : generator(eval, at, std::move(out));
}
Value filter_select(Evaluator& eval, const Expr& at, Arguments& args) {
  return choose(eval, at, args, false, true);
}
Value filter_reject(Evaluator& eval, const Expr& at, Arguments& args) {
  return choose(eval, at, args, false, false);
}
Value filter_selectattr(Evaluator& eval, const Expr& at, Arguments& args) {
  return choose(eval, at, args, true, true);
}
Value filter_rejectattr(Evaluator& eval, const Expr& at, Arguments& args) {
  return choose(eval, at, args, true, false);
}

Value filter_join(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "d", "attribute"}, 1);
  if (eval.failed()) return {};
  const Value separator =
      bound[1].is(Type::kMissing) ? eval.string("") : eval.text_of(at, bound[1]);
  Text out;
  bool first = true;
  for (const Value& item : eval.items_of(at, bound[0])) {
    const Value value = is_path(bound[2]) ? by_path(eval, at, item, bound[2]) : item;
    const Value text = eval.failed() ? Value() : eval.text_of(at, value);
    if (eval.failed()) return {};
    if (!eval.spend(at, 1, weight(*text.text) + weight(*separator.text))) return {};
    if (!std::exchange(first, false)) append(out, *separator.text);
    append(out, *text.text);
  }
  return eval.failed() ? Value() : eval.arena().string(std::move(out));
}

Value filter_unique(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "case_sensitive", "attribute"}, 1);
  if (eval.failed()) return {};
  std::vector<Value> out;
  std::vector<Value> seen;
  for (const Value& item : eval.items_of(at, bound[0])) {
    Value key = is_path(bound[2]) ? by_path(eval, at, item, bound[2]) : item;
    if (!is_on(bound[1])) key = without_case(eval, at, key);
    if (!is_hashable(key) && !key.is(Type::kTuple) && !key.is_undefined())
      return eval.fail(at, fmt::format("'unique' does not take a {}", type_name(key)));
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& old) {
      return !eval.failed() && eval.equal(at, old, key);
    });
    if (eval.failed()) return {};
    if (known) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(eval, at, std::move(out));
}

Value extreme(Evaluator& eval, const Expr& at, const Arguments& args, int wanted) {
  const auto bound = bind(eval, at, args, {"value", "case_sensitive", "attribute"}, 1);
  if (eval.failed()) return {};
  Value best = Value::undefined(&at);
  Value best_key;
  bool first = true;
  for (const Value& item : eval.items_of(at, bound[0])) {
    Value key = is_path(bound[2]) ? by_path(eval, at, item, bound[2]) : item;
    if (!is_on(bound[1])) key = without_case(eval, at, key);
    if (eval.failed()) return {};
    if (first || eval.order(at, key, best_key) == wanted) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return eval.failed() ? Value() : best;
}
Value filter_min(Evaluator& eval, const Expr& at, Arguments& args) {
  return extreme(eval, at, args, -1);
}
Value filter_max(Evaluator& eval, const Expr& at, Arguments& args) {
  return extreme(eval, at, args, 1);
}

Value filter_sum(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"iterable", "attribute", "start"}, 1);
  if (eval.failed()) return {};
  Value total = bound[2].is(Type::kMissing) ? Value::of(int64_t{0}) : bound[2];
  if (total.is_string()) return eval.fail(at, "'sum' does not add texts; use join");
  for (const Value& item : eval.items_of(at, bound[0])) {
    const Value value = is_path(bound[1]) ? by_path(eval, at, item, bound[1]) : item;
    if (eval.failed() || !eval.spend(at, 1)) return {};
    total = eval.add(at, total, value);
  }
  return total;
}

Value filter_attr(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"obj", "name"}, 2);
  const Value name = eval.failed() ? Value() : eval.text_of(at, bound[1]);
  if (eval.failed()) return {};
  if (bound[0].is(Type::kNamespace)) return eval.get_attribute(at, bound[0], name.view());
  const Value method = find_method(eval, bound[0], name.view());
  return method.is(Type::kMissing) ? Value::undefined(&at) : method;
}

Value filter_batch(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "linecount", "fill_with"}, 2);
  if (eval.failed()) return {};
  if (!bound[1].is_integer() || bound[1].as_integer() < 1)
    return eval.fail(at, "'batch' takes a number of 1 or more");
  const auto size = static_cast<size_t>(bound[1].as_integer());
  std::vector<Value> rows;
  std::vector<Value> row;
  const auto close = [&] {
    rows.push_back(generator(eval, at, std::exchange(row, {}), Type::kList));
  };
  for (const Value& item : eval.items_of(at, bound[0])) {
    if (row.size() == size) close();
    row.push_back(item);
  }
  if (is_given(bound[2]) && !row.empty()) {
    if (!eval.spend(at, bound[1].as_integer())) return {};
    row.resize(std::max(row.size(), size), bound[2]);
  }
  if (!row.empty()) close();
  return eval.failed() ? Value() : generator(eval, at, std::move(rows));
}

constexpr FilterEntry kFilters[] = {
    {"list", filter_list},
    {"join", filter_join},
    {"first", filter_first},
    {"last", filter_last},
    {"reverse", filter_reverse},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"unique", filter_unique},
    {"min", filter_min},
    {"max", filter_max},
    {"sum", filter_sum},
    {"attr", filter_attr},
    {"batch", filter_batch},
};

}  // namespace

Callable find_sequence_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return entry.callable;
  }
  return nullptr;
}

}  // namespace markbase::tokenizer::jinja
