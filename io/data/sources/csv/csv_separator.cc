// Counts the candidates in the first rows.
#include "io/data/sources/csv/csv_separator.h"

#include <algorithm>
#include <array>
#include <vector>

#include "io/base/files/io_error.h"

namespace io {
namespace {

constexpr std::string_view kCandidates = ",;\t|";
constexpr std::size_t kRows = 50, kBytes = std::size_t{1} << 20;

using Counts = std::array<std::size_t, kCandidates.size()>;

// Of each candidate, row by row; empty lines are no rows. A last row that is cut off by the limit
// of bytes does not count, unless there is no other.
std::vector<Counts> count_in_rows(std::string_view text) {
  const bool whole = text.size() <= kBytes;
  text = text.substr(0, kBytes);
  std::vector<Counts> rows;
  Counts row{};
  bool quoted = false, empty = true;
  const auto end_row = [&] {
    if (!empty) rows.push_back(row);
    row = {};
    empty = true;
  };
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '\n' || c == '\r')) {
      end_row();
      if (rows.size() == kRows) return rows;
      continue;
    }
    empty = empty && c == ' ';
    const std::size_t candidate = kCandidates.find(c);
    if (!quoted && candidate != std::string_view::npos) ++row[candidate];
  }
  if (whole || rows.empty()) end_row();
  return rows;
}

char detect(std::string_view text) {
  const std::vector<Counts> rows = count_in_rows(text);
  if (rows.empty()) return ',';
  const Counts& first = rows.front();
  for (const std::size_t more : {0, 1}) {  // the other rows have so many fields more
    if (more > 0 && rows.size() < 3) continue;
    for (std::size_t i = 0; i < kCandidates.size(); ++i) {
      const auto alike = [&](const Counts& row) { return row[i] == first[i] + more; };
      if (first[i] > 0 && std::all_of(rows.begin() + 1, rows.end(), alike)) return kCandidates[i];
    }
  }
  return kCandidates[static_cast<std::size_t>(std::max_element(first.begin(), first.end()) -
                                              first.begin())];
}

}  // namespace

std::size_t separator_line(std::string_view text) {
  if (!text.starts_with("sep=") && !text.starts_with("SEP=")) return 0;
  const std::size_t end = text.find_first_of("\r\n", 5);
  if (end != 5) return 0;
  return text.substr(end).starts_with("\r\n") ? 7 : 6;
}

char csv_separator(const std::string& wanted, std::string_view text) {
  if (wanted == "auto") {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (separator_line(text) == 0) return detect(text);
    const char named = text[4];
    return named == '\t' ? named : csv_separator(std::string(1, named), text);
  }
  if (wanted == "tab" || wanted == "\\t") return '\t';
  const bool usable = wanted.size() == 1 &&
                      std::string_view(",;\t|:!#^~&").find(wanted[0]) != std::string_view::npos;
  if (!usable)
    throw ConfigError("the separator of CSV fields is '" + wanted +
                      "'; expected auto, tab or one of , ; | : ! # ^ ~ &");
  return wanted[0];
}

std::string separator_text(char separator) {
  return separator == '\t' ? "a tab" : std::string("'") + separator + "'";
}

}  // namespace io
