// Normalization of Unicode text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace io {

// Returns false if form C is the text itself: characters below U+0300 do not change in it, nor
// combine with each other.
inline bool may_compose(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

// Returns the text in normalization form C (Unicode Standard Annex 15). REQUIRES: well-formed
// UTF-8. Throws Error without memory, ConfigError if the program was built without utf8proc.
std::string composed_text(std::string_view text);

}  // namespace io
