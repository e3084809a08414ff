// JSON as values of a template.
#pragma once

#include "base/json.h"
#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

inline Value value_of(const base::Json& json, Arena& arena) {
  switch (json.type()) {
    case base::Json::value_t::boolean:
      return Value::of(json.get<bool>());
    case base::Json::value_t::number_integer:
    case base::Json::value_t::number_unsigned:
      return Value::of(json.get<int64_t>());
    case base::Json::value_t::number_float:
      return Value::of(json.get<double>());
    case base::Json::value_t::string:
      return arena.string(json.get_ref<const std::string&>(), Origin::kMessage);
    case base::Json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(value_of(item, arena));
      return arena.list(std::move(items));
    }
    case base::Json::value_t::object: {
      const Value dict = arena.dict();
      for (const auto& [key, item] : json.items())
        dict.dict->set(arena.string(key, Origin::kMessage), value_of(item, arena));
      return dict;
    }
    default:
      return Value::none();
  }
}

}  // namespace markbase::tokenizer::jinja
