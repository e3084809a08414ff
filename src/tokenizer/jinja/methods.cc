// Methods of texts, dictionaries, lists and loops.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

using Call = Value (*)(Evaluator&, const Expr&, const Value&, Arguments&);

struct Entry {
  std::string_view name;
  Call call;  // null: Python has it, no chat template needs it
};

int64_t cost_of(const Value& text) { return static_cast<int64_t>(text.view().size()) / 8 + 1; }

// An argument that is a text, an integer, or left out.
bool wrong(Evaluator& eval, const Expr& at, const Value& value, std::string_view expected) {
  eval.fail(at, fmt::format("expected {}, got a {}", expected, type_name(value)));
  return false;
}
bool take_text(Evaluator& eval, const Expr& at, const Value& value) {
  return value.is_string() || (!eval.failed() && wrong(eval, at, value, "a text"));
}
bool take_integer(Evaluator& eval, const Expr& at, const Value& value, int64_t& out) {
  if (value.is(Type::kMissing)) return true;
  if (!value.is_integer()) return wrong(eval, at, value, "an integer");
  out = value.as_integer();
  return true;
}
bool is_given(const Value& value) { return !value.is(Type::kMissing) && !value.is(Type::kNone); }

// Texts.
Value text_case(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                Text (*convert)(const Text&)) {
  bind(eval, at, args, {}, 0);
  const auto size = static_cast<int64_t>(self.view().size());
  if (!eval.spend(at, size / 2 + 1, weight(*self.text) * 3)) return {};
  return eval.arena().string(convert(*self.text));
}
Value str_upper(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_case(eval, at, self, args, [](const Text& t) { return to_case(t, Case::kUpper); });
}
Value str_lower(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_case(eval, at, self, args, [](const Text& t) { return to_case(t, Case::kLower); });
}
Value str_title(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_case(eval, at, self, args, title_method);
}
Value str_capitalize(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_case(eval, at, self, args, capitalize);
}

Value text_strip(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                 Ends ends) {
  const auto bound = bind(eval, at, args, {"chars"}, 0);
  if (eval.failed()) return {};
  std::optional<std::string_view> chars;
  if (is_given(bound[0])) {
    if (!take_text(eval, at, bound[0])) return {};
    chars = bound[0].view();
  }
  const auto size = static_cast<int64_t>(self.view().size());
  if (!eval.spend(at,
                  chars ? size * static_cast<int64_t>(chars->size() + 8) / 8 + 1 : cost_of(self),
                  weight(*self.text)))
    return {};
  return eval.arena().string(strip(*self.text, chars, ends));
}
Value str_strip(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_strip(eval, at, self, args, Ends::kBoth);
}
Value str_lstrip(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_strip(eval, at, self, args, Ends::kLeft);
}
Value str_rstrip(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_strip(eval, at, self, args, Ends::kRight);
}

// What a text of its own takes, about.
constexpr int64_t kTextBytes = 112;

int64_t count_of(std::string_view text, std::string_view part) {
  const Finder finder(part);
  int64_t count = 0;
  for (size_t from = 0; (from = finder.next(text, from)) != text.npos; from += part.size()) ++count;
  return count;
}

Value list_of(Evaluator& eval, std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(eval.arena().string(std::move(text)));
  return eval.arena().list(std::move(items));
}

Value text_split(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                 bool from_right) {
  const auto bound = bind(eval, at, args, {"sep", "maxsplit"}, 0);
  int64_t max_splits = -1;
  if (eval.failed() || !take_integer(eval, at, bound[1], max_splits)) return {};
  const auto size = static_cast<int64_t>(self.view().size());
  if (!eval.spend(at, cost_of(self), weight(*self.text))) return {};
  if (!is_given(bound[0])) {
    if (!eval.spend(at, size, size * kTextBytes / 2)) return {};
    return list_of(eval, split_at_space(*self.text, max_splits, from_right));
  }
  if (!take_text(eval, at, bound[0])) return {};
  if (bound[0].view().empty()) return eval.fail(at, "an empty separator");
  // Before the pieces are made: each is a text of its own.
  const int64_t pieces = count_of(self.view(), bound[0].view()) + 1;
  if (!eval.spend(at, pieces, pieces * kTextBytes)) return {};
  // From the right a search may be quadratic in what repeats itself.
  if (from_right && !eval.spend(at, size * static_cast<int64_t>(bound[0].view().size()) / 16))
    return {};
  return list_of(eval, split(*self.text, bound[0].view(), max_splits, from_right));
}
Value str_split(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_split(eval, at, self, args, false);
}
Value str_rsplit(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_split(eval, at, self, args, true);
}
Value str_splitlines(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"keepends"}, 0);
  if (!eval.spend(at, cost_of(self), static_cast<int64_t>(self.view().size()) * kTextBytes / 2))
    return {};
  return list_of(eval, split_lines(*self.text, is_true(bound[0])));
}

// startswith and endswith take a text or a tuple of texts.
Value text_begins(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                  bool at_end) {
  const auto bound = bind(eval, at, args, {"prefix"}, 1);
  if (eval.failed()) return {};
  const auto matches = [&](const Value& part) {
    return take_text(eval, at, part) &&
           eval.spend(at, static_cast<int64_t>(part.view().size()) / kBytesPerStep) &&
           (at_end ? self.view().ends_with(part.view()) : self.view().starts_with(part.view()));
  };
  if (!bound[0].is(Type::kTuple)) return Value::of(matches(bound[0]));
  if (!eval.spend(at, static_cast<int64_t>(bound[0].list->items.size()) / kLooksPerStep)) return {};
  for (const Value& part : bound[0].list->items) {
    if (matches(part)) return Value::of(true);
    if (eval.failed()) return {};
  }
  return Value::of(false);
}
Value str_startswith(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_begins(eval, at, self, args, false);
}
Value str_endswith(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return text_begins(eval, at, self, args, true);
}

Value str_replace(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"old", "new", "count"}, 2);
  int64_t count = -1;
  if (eval.failed() || !take_text(eval, at, bound[0]) || !take_text(eval, at, bound[1]) ||
      !take_integer(eval, at, bound[2], count)) {
    return {};
  }
  // Before anything grows.
  const auto size = static_cast<int64_t>(self.view().size());
  const auto old_size = static_cast<int64_t>(bound[0].view().size());
  if (!eval.spend(at, cost_of(self))) return {};
  int64_t found = old_size == 0 ? size + 1 : count_of(self.view(), bound[0].view());
  if (count >= 0) found = std::min(found, count);
  const int64_t grown = weight(*self.text) + found * weight(*bound[1].text);
  if (!eval.spend(at, found / 4, grown)) return {};
  return eval.arena().string(replace(*self.text, bound[0].view(), *bound[1].text, count));
}

// find, rfind: code points, -1 where there is none.
int64_t position_in(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                    bool last) {
  const auto bound = bind(eval, at, args, {"sub"}, 1);
  if (eval.failed() || !take_text(eval, at, bound[0])) return -1;
  const std::string_view text = self.view();
  if (!eval.spend(at, last ? cost_of(self) * (cost_of(bound[0]) + 1) : cost_of(self))) return -1;
  const size_t found = last ? text.rfind(bound[0].view()) : find_bytes(text, bound[0].view());
  return found == text.npos ? -1 : length(text.substr(0, found));
}
Value str_find(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return Value::of(position_in(eval, at, self, args, false));
}
Value str_rfind(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return Value::of(position_in(eval, at, self, args, true));
}
Value found_or_error(Evaluator& eval, const Expr& at, int64_t position) {
  if (position < 0 && !eval.failed()) return eval.fail(at, "the text is not found");
  return Value::of(position);
}
Value str_index(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return found_or_error(eval, at, position_in(eval, at, self, args, false));
}
Value str_rindex(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return found_or_error(eval, at, position_in(eval, at, self, args, true));
}
Value str_count(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"sub"}, 1);
  if (eval.failed() || !take_text(eval, at, bound[0]) || !eval.spend(at, cost_of(self))) return {};
  const std::string_view part = bound[0].view();
  if (part.empty()) return Value::of(length(self.view()) + 1);
  return Value::of(count_of(self.view(), part));
}

Value str_join(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"iterable"}, 1);
  if (eval.failed()) return {};
  Text out;
  bool first = true;
  for (const Value& item : eval.items_of(at, bound[0])) {
    if (!take_text(eval, at, item)) return {};
    if (!eval.spend(at, 1, weight(*item.text) + weight(*self.text))) return {};
    if (!std::exchange(first, false)) append(out, *self.text);
    append(out, *item.text);
  }
  return eval.failed() ? Value() : eval.arena().string(std::move(out));
}

Value str_removeprefix(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"prefix"}, 1);
  if (eval.failed() || !take_text(eval, at, bound[0])) return {};
  if (!self.view().starts_with(bound[0].view())) return self;
  if (!eval.spend(at, 1, static_cast<int64_t>(self.view().size()))) return {};
  return eval.arena().string(sub_text(*self.text, bound[0].view().size(), self.view().size()));
}
Value str_removesuffix(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"suffix"}, 1);
  if (eval.failed() || !take_text(eval, at, bound[0])) return {};
  if (!self.view().ends_with(bound[0].view())) return self;
  if (!eval.spend(at, 1, static_cast<int64_t>(self.view().size()))) return {};
  return eval.arena().string(sub_text(*self.text, 0, self.view().size() - bound[0].view().size()));
}

constexpr Entry kStringMethods[] = {
    {"upper", str_upper},
    {"lower", str_lower},
    {"title", str_title},
    {"capitalize", str_capitalize},
    {"strip", str_strip},
    {"lstrip", str_lstrip},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"rsplit", str_rsplit},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"endswith", str_endswith},
    {"replace", str_replace},
    {"find", str_find},
    {"rfind", str_rfind},
    {"index", str_index},
    {"rindex", str_rindex},
    {"count", str_count},
    {"join", str_join},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"isalnum", nullptr},
    {"isalpha", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isdigit", nullptr},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"isspace", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};

// Dictionaries.
Value dict_get(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"key", "default"}, 1);
  if (!args.named.empty()) eval.fail(at, "'get' takes no names of arguments");
  if (eval.failed()) return {};
  const Value otherwise = bound[1].is(Type::kMissing) ? Value::none() : bound[1];
  if (bound[0].is_string()) {
    if (!eval.spend_lookup(at, self, bound[0])) return {};
    const Value* found = self.dict->find(bound[0].view());
    return found != nullptr ? *found : otherwise;
  }
  if (bound[0].is(Type::kList) || bound[0].is(Type::kDict))
    return eval.fail(at, fmt::format("a {} cannot be a key", type_name(bound[0])));
  if (!eval.spend_lookup(at, self, bound[0])) return {};
  for (const auto& [key, value] : self.dict->items) {
    if (same_key(key, bound[0])) return value;
  }
  return otherwise;
}
enum class Part : uint8_t { kKeys, kValues, kItems };
Value dict_view(Evaluator& eval, const Expr& at, const Value& self, const Arguments& args,
                Part part, std::string_view name) {
  bind(eval, at, args, {}, 0);
  const auto size = static_cast<int64_t>(self.dict->items.size());
  if (!eval.spend(at, size / 4, size * 80)) return {};
  std::vector<Value> items;
  items.reserve(self.dict->items.size());
  for (const auto& [key, value] : self.dict->items) {
    items.push_back(part == Part::kKeys     ? key
                    : part == Part::kValues ? value
                                            : eval.arena().list({key, value}, Type::kTuple));
  }
  return eval.arena().view(std::move(items), name);
}
Value dict_items(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return dict_view(eval, at, self, args, Part::kItems, "dict_items");
}
Value dict_keys(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return dict_view(eval, at, self, args, Part::kKeys, "dict_keys");
}
Value dict_values(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  return dict_view(eval, at, self, args, Part::kValues, "dict_values");
}
Value dict_copy(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  bind(eval, at, args, {}, 0);
  return self;  // nothing can change either
}

constexpr Entry kDictMethods[] = {
    {"get", dict_get},       {"items", dict_items}, {"keys", dict_keys},
    {"values", dict_values}, {"copy", dict_copy},   {"fromkeys", nullptr},
};

// Lists.
Value list_index(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value"}, 1);
  const std::vector<Value>& items = self.list->items;
  for (size_t i = 0; i < items.size() && !eval.failed(); ++i) {
    if (eval.equal(at, items[i], bound[0])) return Value::of(static_cast<int64_t>(i));
  }
  return eval.fail(at, "the value is not in the list");
}
Value list_count(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.list->items) {
    if (eval.failed()) return {};
    count += eval.equal(at, item, bound[0]) ? 1 : 0;
  }
  return Value::of(count);
}
Value list_copy(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  bind(eval, at, args, {}, 0);
  return self;
}

constexpr Entry kListMethods[] = {
    {"index", list_index}, {"count", list_count}, {"copy", list_copy}};
constexpr Entry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

// Loops.
Value loop_cycle(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  if (args.positional.empty()) return eval.fail(at, "'loop.cycle' takes at least one value");
  return args.positional[self.loop->index % args.positional.size()];
}
Value loop_changed(Evaluator& eval, const Expr& at, const Value& self, Arguments& args) {
  Loop& loop = *self.loop;
  bool same = loop.has_changed && loop.changed.size() == args.positional.size();
  for (size_t i = 0; same && i < loop.changed.size(); ++i)
    same = eval.equal(at, loop.changed[i], args.positional[i]);
  loop.changed = args.positional;
  loop.has_changed = true;
  return Value::of(!same);
}
constexpr Entry kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

std::span<const Entry> methods_of(const Value& value) {
  switch (value.type) {
    case Type::kString:
      return kStringMethods;
    case Type::kDict:
      return kDictMethods;
    case Type::kList:
      return kListMethods;
    case Type::kTuple:
      return kTupleMethods;
    case Type::kLoop:
      return kLoopMethods;
    default:
      return {};
  }
}

const Entry* entry_of(const Value& value, std::string_view name) {
  for (const Entry& entry : methods_of(value)) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.size());
  if (name == "index0") return Value::of(index);
  if (name == "index") return Value::of(index + 1);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 == size);
  if (name == "length") return Value::of(size);
  if (name == "revindex") return Value::of(size - index);
  if (name == "revindex0") return Value::of(size - index - 1);
  if (name == "depth") return Value::of(loop.depth);
  if (name == "depth0") return Value::of(loop.depth - 1);
  if (name == "previtem") return index > 0 ? loop.item(loop.index - 1) : Value();
  if (name == "nextitem") return index + 1 < size ? loop.item(loop.index + 1) : Value();
  return Value::missing();
}

}  // namespace

Value find_method(Evaluator& eval, const Value& value, std::string_view name) {
  if (entry_of(value, name) != nullptr) {
    if (!eval.budget().spend_bytes(64)) return Value::missing();
    return eval.arena().method(value, name);
  }
  return value.is(Type::kLoop) ? loop_attribute(*value.loop, name) : Value::missing();
}

Value call_method(Evaluator& eval, const Expr& at, const Method& method, Arguments& args) {
  const Entry* entry = entry_of(method.receiver, method.name);
  if (entry->call == nullptr) {
    return eval.fail(at, fmt::format("the method '{}' of a {} is not supported", method.name,
                                     type_name(method.receiver)));
  }
  return entry->call(eval, at, method.receiver, args);
}

}  // namespace markbase::tokenizer::jinja
