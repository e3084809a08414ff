// A chat template in Jinja, as transformers runs it: trim_blocks and lstrip_blocks on, loop
// controls, tojson without HTML escapes, raise_exception, strftime_now, {% generation %}; no files,
// no changes to the values it is given. What a chat template has no use for (include, extends,
// import, recursive loops, autoescape, safe and escape) is refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

struct Tree;

// Immutable; render() may run on any number of threads at once.
class Template {
 public:
  // Errors (kBadInput) begin with line and column.
  static Result<Template> parse(std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  using Variables = std::vector<std::pair<std::string_view, Value>>;
  // The values must outlive the call. A template is untrusted: one that runs too long, grows too
  // large or calls itself too deep ends with an error; how long and how large grows with the
  // values. Errors begin with line and column: kUsage where the template refuses what it is given
  // or fails on it, kBadInput where it breaks a limit.
  Result<Text> render(const Variables& variables) const;

  // Whether the template speaks of a variable, or has the word as an attribute or in a text.
  bool has_variable(std::string_view name) const;
  bool mentions(std::string_view word) const;

 private:
  explicit Template(std::unique_ptr<Tree> tree);
  std::unique_ptr<Tree> tree_;
};

}  // namespace markbase::tokenizer::jinja
