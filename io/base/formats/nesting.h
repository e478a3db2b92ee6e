// How deeply a text nests, before a parser builds what it says: values within values are destroyed,
// and partly parsed, by recursion, so that a text of many levels would use up the stack.
#pragma once

#include <string_view>

namespace io {

// More than any file that the program writes or reads has.
inline constexpr int kMaxNesting = 64;

// Whether lists and objects of JSON (RFC 8259) lie within at most kMaxNesting others. Text that is
// not JSON may be either.
bool json_nests_within_limit(std::string_view text);

// The same of TOML 1.0, where a dotted key or header of n parts makes n - 1 tables.
bool toml_nests_within_limit(std::string_view text);

}  // namespace io
