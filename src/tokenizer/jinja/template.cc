#include "tokenizer/jinja/template.h"

#include <algorithm>

#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/parser.h"

namespace markbase::tokenizer::jinja {
namespace {

// A conversation of a thousand messages with tools takes about one million steps; this many end
// within a second on any machine that can run a model.
constexpr Limits kLimits = {.max_steps = 8'000'000, .max_bytes = int64_t{256} << 20};

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
  Evaluator evaluator(*tree_, kLimits);
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
