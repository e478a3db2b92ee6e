// Normalization of Unicode text.
#pragma once

#include <string>
#include <string_view>

namespace io {

// Returns the text in normalization form C (Unicode Standard Annex 15). REQUIRES: well-formed
// UTF-8. Throws Error without memory, ConfigError if the program was built without utf8proc.
std::string composed_text(std::string_view text);

}  // namespace io
