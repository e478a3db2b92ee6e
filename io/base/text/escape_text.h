// Text that somebody else wrote (names in files, what a server answers), made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace base {

// `text` with escapes in place of all that would act on a terminal or hide from its reader instead
// of being seen: control characters (\n, \t, \r, \x1b, \u009b), bytes that are not UTF-8 (\xff),
// and the marks that turn the direction of writing, break lines or have no width (\u202e). What is
// left is one line of UTF-8. A backslash stays one, so that ordinary text is unchanged and
// doing it twice does no harm.
std::string escape_text(std::string_view text);

// The same for text of several lines: line feeds and tabs are kept.
std::string visible_lines(std::string_view text);

// `text` as a JSON string with its quotes (RFC 8259, section 7). The same characters are escaped,
// as JSON does it, so that they read back; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace base
