#include "tokenizer/tool_schema.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace markbase::tokenizer {
namespace {

using base::Json;

constexpr size_t kMaxFaults = 100;
constexpr int kMaxDepth = 128;

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return text;
}

std::vector<std::string> type_names(const Json& schema) {
  std::vector<std::string> names;
  const Json* type = member(schema, "type");
  if (type == nullptr) return names;
  for (const Json& name : type->is_array() ? *type : Json::array({*type})) {
    if (name.is_string()) names.push_back(lower(name.get<std::string>()));
  }
  const Json* nullable = member(schema, "nullable");
  if (!names.empty() && nullable != nullptr && *nullable == true) names.emplace_back("null");
  return names;
}

bool is_whole(const Json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>();
}

bool has_type(const Json& value, const std::string& name) {
  if (name == "string") return value.is_string();
  if (name == "integer") return is_whole(value);
  if (name == "number") return value.is_number();
  if (name == "boolean") return value.is_boolean();
  if (name == "array") return value.is_array();
  if (name == "object") return value.is_object();
  if (name == "null") return value.is_null();
  return true;  // not a type that JSON schema knows: nothing to hold the value against
}

class Checker {
 public:
  void check(const Json& value, const Json& schema, const std::string& where, int depth) {
    if (!schema.is_object() || depth > kMaxDepth) return;
    const std::vector<std::string> types = type_names(schema);
    const bool fits = std::any_of(types.begin(), types.end(),
                                  [&](const std::string& name) { return has_type(value, name); });
    if (!types.empty() && !fits) {
      return add("{}: expected {}, got {}", where, fmt::join(types, " or "), shown(value));
    }
    check_enum(value, schema, where);
    if (value.is_object()) check_object(value, schema, where, depth);
    const Json* items = member(schema, "items");
    if (!value.is_array() || items == nullptr) return;
    for (size_t i = 0; i < value.size(); ++i) {
      check(value[i], *items, fmt::format("{}[{}]", where, i), depth + 1);
    }
  }
  std::vector<std::string> take() { return std::move(faults_); }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (faults_.size() < kMaxFaults) {
      faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
  }

  static std::string shown(const Json& value) {
    constexpr size_t kMostShown = 60;
    std::string text = base::dump_json(value);
    if (text.size() <= kMostShown) return text;
    size_t end = kMostShown;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
  }

  void check_enum(const Json& value, const Json& schema, const std::string& where) {
    const Json* allowed = member(schema, "enum");
    if (allowed == nullptr || !allowed->is_array()) return;
    if (std::find(allowed->begin(), allowed->end(), value) != allowed->end()) return;
    const std::vector<std::string> types = type_names(schema);
    if (value.is_null() && std::find(types.begin(), types.end(), "null") != types.end()) return;
    add("{}: expected one of {}, got {}", where, shown(*allowed), shown(value));
  }

  void check_object(const Json& value, const Json& schema, const std::string& where, int depth) {
    const Json* properties = member(schema, "properties");
    const Json* others = member(schema, "additionalProperties");
    const Json* required = member(schema, "required");
    if (required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        if (!name.is_string() || value.contains(name.get_ref<const std::string&>())) continue;
        add("{}: '{}' is required and not there", where, name.get_ref<const std::string&>());
      }
    }
    for (const auto& [name, item] : value.items()) {
      const std::string place = where + "." + name;
      const Json* property = properties == nullptr ? nullptr : member(*properties, name);
      if (property != nullptr) {
        check(item, *property, place, depth + 1);
      } else if (others != nullptr && others->is_object()) {
        check(item, *others, place, depth + 1);
      } else if ((properties != nullptr && others == nullptr) ||
                 (others != nullptr && *others == false)) {
        add("{}: there is no parameter '{}'", where, name);
      }
    }
  }

  std::vector<std::string> faults_;
};

}  // namespace

Result<ToolSet> ToolSet::from_json(const Json& tools) {
  if (!tools.is_array()) {
    return base::usage_error("tools: expected a list, got {}", tools.type_name());
  }
  ToolSet set;
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json* inner = member(tools[i], "function");
    const Json& function = inner != nullptr ? *inner : tools[i];
    const Json* name = member(function, "name");
    if (name == nullptr || !name->is_string()) {
      return base::usage_error(
          "tools: entry {}: expected a function with a 'name' that is a text, "
          "got {}",
          i, base::dump_json(tools[i]));
    }
    if (!names.insert(name->get<std::string>()).second) {
      return base::usage_error("tools: entry {}: '{}' is declared twice", i,
                               name->get<std::string>());
    }
    set.functions_.push_back(function);
  }
  return set;
}

std::vector<std::string> ToolSet::faults(const ToolCall& call) const {
  const auto function = std::find_if(functions_.begin(), functions_.end(), [&](const Json& entry) {
    return entry["name"].get_ref<const std::string&>() == call.name;
  });
  if (function == functions_.end()) return {fmt::format("there is no tool '{}'", call.name)};
  const Result<Json> arguments = base::parse_json(call.arguments, "arguments");
  if (!arguments.ok()) return {arguments.error().message};
  const Json* parameters = member(*function, "parameters");
  Checker checker;
  // A function without parameters takes none.
  const Json no_parameters = {{"type", "object"}, {"properties", Json::object()}};
  checker.check(*arguments, parameters != nullptr ? *parameters : no_parameters, "arguments", 0);
  return checker.take();
}

}  // namespace markbase::tokenizer
