#include "tokenizer/jinja/value.h"

#include "tokenizer/jinja/python.h"

namespace markbase::tokenizer::jinja {
namespace {

// Short dictionaries are searched one by one.
constexpr size_t kMaxUnindexed = 12;

}  // namespace

// Counted without signs, so that no pair of bounds overflows.
int64_t Range::size() const {
  if (step > 0) {
    if (start >= stop) return 0;
    const uint64_t span = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) - 1;
    return static_cast<int64_t>(span / static_cast<uint64_t>(step)) + 1;
  }
  if (start <= stop) return 0;
  const uint64_t span = static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) - 1;
  return static_cast<int64_t>(span / (uint64_t{0} - static_cast<uint64_t>(step))) + 1;
}

size_t Loop::size() const {
  return items != nullptr ? items->size() : static_cast<size_t>(range->size());
}

Value Loop::item(size_t at) const {
  return items != nullptr ? (*items)[at]
                          : Value::of(range->start + static_cast<int64_t>(at) * range->step);
}

const Value* Dict::find(std::string_view key) const {
  if (items.size() > kMaxUnindexed) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &items[found->second].second;
  }
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.view() == key) return &value;
  }
  return nullptr;
}

size_t Dict::place_of(const Value& key) const {
  if (key.is_string() && items.size() > kMaxUnindexed) {
    const auto found = index_.find(key.view());
    return found == index_.end() ? items.size() : found->second;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (same_key(items[i].first, key)) return i;
  }
  return items.size();
}

void Dict::set(const Value& key, const Value& value) {
  const size_t place = place_of(key);
  if (place < items.size()) {
    items[place].second = value;
    return;
  }
  items.emplace_back(key, value);
  if (items.size() <= kMaxUnindexed) return;
  // The texts stay where they are for as long as the arena lives.
  const size_t first = items.size() == kMaxUnindexed + 1 ? 0 : items.size() - 1;
  for (size_t i = first; i < items.size(); ++i) {
    if (items[i].first.is_string()) index_.emplace(items[i].first.view(), i);
  }
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : items) {
    if (key->bytes == name) return &value;
  }
  return nullptr;
}

int64_t weight(const Text& text) {
  return static_cast<int64_t>(text.bytes.size() + text.runs.size() * sizeof(Run));
}

// What an allocation takes beside what was asked for, about.
constexpr int64_t kAllocationBytes = 16;

Value Arena::string(Text text) {
  bytes_ += static_cast<int64_t>(sizeof(Text)) + 2 * kAllocationBytes + weight(text);
  return Value::of(&texts_.emplace_back(std::move(text)));
}

Value Arena::string(std::string_view bytes, Origin origin) {
  Text text{std::string(bytes), {}};
  if (!bytes.empty()) text.runs.push_back({bytes.size(), origin});
  return string(std::move(text));
}

Value Arena::big_int(std::string_view digits) {
  Value value = string(digits, Origin::kMessage);
  value.type = Type::kBigInt;
  return value;
}

Value Arena::list(std::vector<Value> items, Type type) {
  Value value = Value::of(type);
  bytes_ += static_cast<int64_t>(sizeof(List) + items.size() * sizeof(Value)) + kAllocationBytes;
  value.list = &lists_.emplace_back(List{std::move(items), {}});
  return value;
}

Value Arena::view(std::vector<Value> items, std::string_view name) {
  Value value = list(std::move(items), Type::kView);
  value.list->view_name = name;
  return value;
}

Value Arena::dict() {
  Value value = Value::of(Type::kDict);
  bytes_ += sizeof(Dict);
  value.dict = &dicts_.emplace_back();
  return value;
}

Value Arena::range(Range range) {
  Value value = Value::of(Type::kRange);
  bytes_ += sizeof(Range);
  value.range = &ranges_.emplace_back(range);
  return value;
}

Value Arena::names() {
  Value value = Value::of(Type::kNamespace);
  bytes_ += sizeof(Namespace);
  value.names = &namespaces_.emplace_back();
  return value;
}

Value Arena::method(const Value& receiver, std::string_view name) {
  Value value = Value::of(Type::kMethod);
  bytes_ += sizeof(Method);
  value.method = &methods_.emplace_back(Method{receiver, name});
  return value;
}

Loop* Arena::loop() {
  bytes_ += sizeof(Loop);
  return &loops_.emplace_back();
}

}  // namespace markbase::tokenizer::jinja
