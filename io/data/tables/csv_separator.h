// Detects the separator of the fields of a CSV file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace io {

// Returns the length of a first line "sep=;" with its end, as Excel writes and reads it; 0 if there
// is none.
std::size_t separator_line(std::string_view text);
// Returns true if the file begins with a separator line, also after a byte-order mark.
bool names_separator(std::string_view text);

// Returns the character named `wanted`: "tab", "space" (one or more blanks), or the character
// itself. "auto" selects that of a separator_line(). Otherwise the candidates are those of , ; tab
// and | that divide all of the first rows into the same number of fields, two or more, or the first
// one into one less (csv_table.h). It selects the one with the largest fraction of numbers among
// the fields, or the first. If none fits, it selects blanks if all rows but the first start with a
// quoted field, as in the output of R's write.table(), otherwise the most frequent candidate in the
// first row, otherwise a comma. Quoted fields are skipped. Throws ConfigError for anything else.
char csv_separator(const std::string& wanted, std::string_view text);

// Returns the separator of a file that need not have that of an earlier one, `before` (as `wanted`
// above): `before` if it divides all of the first rows into the same number of fields, otherwise
// the one that "auto" selects if it divides them so, otherwise `before`. Throws as above.
char separator_after(const std::string& before, std::string_view text);

// Returns the other candidates that divide the rows equally well: "';' and a tab". "" if there are
// none, or if the user has named the separator.
std::string also_fitting(const std::string& wanted, std::string_view text);

// Returns "','", "';'", "a tab", "blanks", for messages.
std::string separator_text(char separator);

}  // namespace io
