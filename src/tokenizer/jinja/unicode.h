// What Python says about single characters, from its Unicode tables.
#pragma once

namespace markbase::tokenizer::jinja {

// str.isprintable() of one character: repr() escapes the others.
bool is_printable(char32_t c);

}  // namespace markbase::tokenizer::jinja
