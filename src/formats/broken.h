// Messages of the readers, all of one form: "FILE: WHAT: expected X, got Y".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace markbase::formats {

// A name out of a file, fit for a one-line message: in quotes, control bytes escaped, cut at 80
// bytes.
std::string shown(std::string_view name);

inline Error broken(std::string_view file, std::string_view what, std::string_view expected,
                    std::string_view got) {
  return base::bad_input("{}: {}: expected {}, got {}", file, what, expected, got);
}

// The error that explains bytes which are no checkpoint at all: an empty file or a Git LFS pointer.
// nullopt for anything else. `expected` names the file kind.
std::optional<Error> not_a_checkpoint(std::string_view file, std::string_view bytes,
                                      std::string_view expected);

}  // namespace markbase::formats
