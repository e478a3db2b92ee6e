// Escapes text from outside (names in files, answers of a server) for display.
#pragma once

#include <string>
#include <string_view>

namespace base {

// Returns `text` with escapes in place of everything that would control a terminal or be invisible
// to the reader: control characters (\n, \t, \r, \x1b, \u009b), bytes that are not UTF-8 (\xff),
// and characters that change the direction of writing, break lines or have no width (\u202e). The
// result is one line of UTF-8. Backslashes are not escaped, so that ordinary text is unchanged and
// a second call has no effect.
std::string escape_text(std::string_view text);

// The same for text of several lines: keeps line feeds and tabs.
std::string visible_lines(std::string_view text);

// Returns `text` as a JSON string with its quotes (RFC 8259, section 7). The same characters are
// escaped in JSON's way, so that they read back; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace base
