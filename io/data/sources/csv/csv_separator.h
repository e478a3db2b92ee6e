// What stands between the fields of a CSV file.
#pragma once

#include <string>
#include <string_view>

namespace io {

// The character that `wanted` names: "tab", or the character itself; "auto": of , ; tab and | the
// first that cuts all of the first rows into equally many fields, two or more, else the most
// frequent one of the first row, else a comma. Quoted fields are passed over. Throws ConfigError
// for anything else.
char csv_separator(const std::string& wanted, std::string_view text);

// "','", "';'", "a tab": for messages.
std::string separator_text(char separator);

}  // namespace io
