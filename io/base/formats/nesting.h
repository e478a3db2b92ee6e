// Checks what a text must not have before a parser reads it. Above all its nesting depth: nested
// values are destroyed, and partly parsed, by recursion, so that many levels exhaust the stack.
#pragma once

#include <optional>
#include <string_view>

namespace io {

// Deeper than any file that the program writes or reads.
inline constexpr int kMaxNesting = 64;

// Returns true if lists and objects of JSON (RFC 8259) are nested in at most kMaxNesting others.
// The result is unspecified for text that is not JSON.
bool json_nests_within_limit(std::string_view text);

// The same for TOML 1.0, where a dotted key or header of n parts creates n - 1 tables.
bool toml_nests_within_limit(std::string_view text);

// Returns the line, from 1, of the first character outside strings and comments of TOML 1.0 that is
// not ASCII, which no valid text has. The parser of toml++ 3.3.0 asserts that none begins a key.
std::optional<int> line_of_stray_toml_character(std::string_view text);

}  // namespace io
