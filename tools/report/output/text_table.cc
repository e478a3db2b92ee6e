// Makes columns as wide as their widest cell.
#include "tools/report/output/text_table.h"

#include <algorithm>

#include "io/base/text/text_parts.h"

namespace tools {

std::string table_text(const std::vector<Cells>& lines, const std::vector<std::size_t>& left,
                       bool markdown) {
  const auto is_left = [&left](std::size_t c) {
    return std::find(left.begin(), left.end(), c) != left.end();
  };
  std::vector<std::size_t> widths(lines.front().size(), 1);
  for (const Cells& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string row = markdown ? "|" : "";
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string blanks(widths[c] - lines[i][c].size(), ' ');
      row += (markdown ? " "
              : c > 0  ? "  "
                       : "") +
             (is_left(c) ? lines[i][c] + blanks : blanks + lines[i][c]) + (markdown ? " |" : "");
    }
    while (row.ends_with(' ')) row.pop_back();
    text += row + "\n";
    if (i > 0 || !markdown) continue;
    text += "|";
    for (std::size_t c = 0; c < widths.size(); ++c)
      text += is_left(c) ? std::string(widths[c] + 2, '-') + "|"
                         : std::string(widths[c] + 1, '-') + ":|";
    text += "\n";
  }
  return text;
}

std::string fixed(double value, int digits) {
  return base::number_text(("%." + std::to_string(digits) + "f").c_str(), value);
}

}  // namespace tools
