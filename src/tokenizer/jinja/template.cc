#include "tokenizer/jinja/template.h"

#include <algorithm>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"

namespace markbase::tokenizer::jinja {
namespace {

// What a template may do with nothing: this many steps end within a second on any machine that can
// run a model.
constexpr Limits kLimits = {.max_steps = 8'000'000, .max_bytes = int64_t{256} << 20};
// What it may do besides for each value that it is given, and each byte of their texts. The
// published templates take up to 30 steps a value and 10 bytes a byte of a long conversation.
constexpr int64_t kStepsPerValue = 100;
constexpr int64_t kBytesPerValue = 512;
constexpr int64_t kBytesPerTextByte = 8;

// Adds what a value, and all in it, is worth.
void allow(const Value& value, Limits& limits, int depth = 0) {
  if (depth > kMaxValueDepth) return;
  limits.max_steps += kStepsPerValue;
  limits.max_bytes += kBytesPerValue;
  if (value.is_string()) {
    limits.max_bytes += kBytesPerTextByte * static_cast<int64_t>(value.view().size());
  } else if (value.is(Type::kList)) {
    for (const Value& item : value.list->items) allow(item, limits, depth + 1);
  } else if (value.is(Type::kDict)) {
    for (const auto& [key, item] : value.dict->items) {
      allow(key, limits, depth + 1);
      allow(item, limits, depth + 1);
    }
  }
}

}  // namespace

Template::Template(std::unique_ptr<Tree> tree) : tree_(std::move(tree)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source) {
  MB_ASSIGN(auto tree, jinja::parse(source));
  return Template(std::move(tree));
}

Result<Text> Template::render(const Variables& variables) const {
  Limits limits = kLimits;
  for (const auto& [name, value] : variables) allow(value, limits);
  Evaluator evaluator(*tree_, limits);
  for (const auto& [name, value] : variables) evaluator.define(name, value);
  return evaluator.run();
}

bool Template::has_variable(std::string_view name) const {
  return std::find(tree_->names.begin(), tree_->names.end(), name) != tree_->names.end();
}

bool Template::mentions(std::string_view word) const {
  return tree_->source.find(word) != tree_->source.npos;
}

}  // namespace markbase::tokenizer::jinja
