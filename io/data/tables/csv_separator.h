// What stands between the fields of a CSV file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace io {

// The length of a first line "sep=;" with its end, as Excel writes and reads it; 0: there is none.
std::size_t separator_line(std::string_view text);

// The character that `wanted` names: "tab", "space" (which stands for blanks, one or more), or the
// character itself; "auto": that of a
// separator_line(), else of , ; tab and | those that cut all of the first rows into equally many
// fields, two or more, or the first one into one less (csv_table.h): the one that makes the largest
// share of the fields numbers, else the first. If none fits, blanks
// if all rows but the first begin with a quoted field, as R's write.table() has it, else the most
// frequent one of the first row, else a comma. Quoted fields are passed over. Throws ConfigError
// for anything else.
char csv_separator(const std::string& wanted, std::string_view text);

// The other ones that would have cut the rows alike: "';' and a tab". "" if there are none, or if
// somebody has named the separator.
std::string also_fitting(const std::string& wanted, std::string_view text);

// "','", "';'", "a tab", "blanks": for messages.
std::string separator_text(char separator);

}  // namespace io
