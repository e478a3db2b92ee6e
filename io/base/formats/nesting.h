// Limits the nesting depth of a text before a parser reads it: nested values are destroyed, and
// partly parsed, by recursion, so that a text with many levels would exhaust the stack.
#pragma once

#include <string_view>

namespace io {

// Deeper than any file that the program writes or reads.
inline constexpr int kMaxNesting = 64;

// Returns true if lists and objects of JSON (RFC 8259) are nested in at most kMaxNesting others.
// The result is unspecified for text that is not JSON.
bool json_nests_within_limit(std::string_view text);

// The same for TOML 1.0, where a dotted key or header of n parts creates n - 1 tables.
bool toml_nests_within_limit(std::string_view text);

}  // namespace io
