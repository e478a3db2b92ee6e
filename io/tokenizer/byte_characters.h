// The characters in which vocabularies of byte-level tokenizers write bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace io {

// Returns the bytes for which the characters of `token`, UTF-8, stand; none if one of them stands
// for no byte.
std::optional<std::string> bytes_of_characters(std::string_view token);

}  // namespace io
