// What Python says about values: truth, equality, order, how they print.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

// Counts what an untrusted template costs. Once it is used up, every spend says no.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  bool spend_steps(int64_t n) {
    if (steps_ >= 0) steps_ = n <= steps_ ? steps_ - n : -1;
    return steps_ >= 0;
  }
  // For text and lists that are built; long ones take time too.
  bool spend_bytes(int64_t n) {
    if (bytes_ >= 0) bytes_ = n <= bytes_ ? bytes_ - n : -1;
    return bytes_ >= 0;
  }
  bool is_spent() const { return steps_ < 0 || bytes_ < 0; }

 private:
  int64_t steps_;
  int64_t bytes_;
};

// Values may contain themselves: what walks them stops at this depth.
constexpr int kMaxValueDepth = 300;

// What one step pays for, of work that goes with a size: names, keys and entries that are looked at
// or copied, and bytes of a text that are hashed or compared.
constexpr int64_t kLooksPerStep = 16;
constexpr int64_t kBytesPerStep = 64;

// "str", "int", "list", ...: type(value).__name__
std::string_view type_name(const Value& value);

bool is_true(const Value& value);

// Python's ==. False also where the budget ends or values nest too deep; the caller looks at the
// budget.
bool equals(const Value& a, const Value& b, Budget& budget, int depth = 0);
// Whether two keys of a dict are one; keys are scalars.
bool same_key(const Value& a, const Value& b);
// Keys of a dict can be none, numbers and texts here.
bool is_hashable(const Value& value);

// -1, 0, 1; nothing where Python has no order for the two (or the budget ends).
std::optional<int> compare(const Value& a, const Value& b, Budget& budget, int depth = 0);

// repr() of a float: the shortest digits that give it back, "1e+20", "1e-07", "0.1", "2.0".
std::string float_text(double value);

// Appends str(value), or repr(value) when `quoted`. What is not text has the origin kMessage, so it
// forms no control token. False: nested too deep, too long, or a kind of value that prints an
// address in Python and so has no text here (a function).
bool append_value(Text& out, const Value& value, bool quoted, Budget& budget, int depth = 0);

}  // namespace markbase::tokenizer::jinja
