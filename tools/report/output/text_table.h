// Formats tables as plain text or Markdown.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tools {

using Cells = std::vector<std::string>;
// `lines` begins with the names of the columns. Columns in `left` contain text, the others numbers.
std::string table_text(const std::vector<Cells>& lines, const std::vector<std::size_t>& left,
                       bool markdown);

std::string fixed(double value, int digits);  // e.g. "12.30"

}  // namespace tools
