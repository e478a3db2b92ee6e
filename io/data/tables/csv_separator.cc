// Counts the candidates in the first rows.
#include "io/data/tables/csv_separator.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/tables/csv_number.h"

namespace io {
namespace {

constexpr std::string_view kCandidates = ",;\t|", kSeparators = ",;\t|:!#^~&";
constexpr std::size_t kRows = 50, kBytes = std::size_t{1} << 20;

using Counts = std::array<std::size_t, kSeparators.size()>;

// Counts each separator, row by row; empty lines are not rows. A last row that is truncated by the
// byte limit does not count, unless it is the only one.
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
    const std::size_t separator = kSeparators.find(c);
    if (!quoted && separator != std::string_view::npos) ++row[separator];
  }
  if (whole || rows.empty()) end_row();
  return rows;
}

// Returns those of the candidates, which are some of kSeparators, that divide all of the first rows
// into the same number of fields, or the first row into one less; those of the second kind only if
// there is none of the first.
std::string fitting(std::string_view candidates, const std::vector<Counts>& rows) {
  std::string found;
  const Counts& first = rows.front();
  for (const std::size_t more : {0, 1}) {  // the difference of the other rows' field count
    if (!found.empty() || (more > 0 && rows.size() < 3)) continue;
    for (const char candidate : candidates) {
      const std::size_t i = kSeparators.find(candidate);
      const auto alike = [&](const Counts& row) { return row[i] == first[i] + more; };
      if (first[i] > 0 && std::all_of(rows.begin() + 1, rows.end(), alike))
        found.push_back(candidate);
    }
  }
  return found;
}

// Returns the fraction of numbers among the fields of the first rows, divided at `separator`.
double share_of_numbers(std::string_view text, char separator) {
  std::size_t fields = 0, numbers = 0, rows = 0, begin = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < std::min(text.size(), kBytes) && rows < kRows; ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    const bool line_end = c == '\n' || c == '\r';
    if (quoted || (c != separator && !line_end)) continue;
    std::string_view field = text.substr(begin, i - begin);
    while (field.starts_with(' ')) field.remove_prefix(1);
    while (field.ends_with(' ')) field.remove_suffix(1);
    begin = i + 1;
    rows += line_end ? 1 : 0;
    fields += field.empty() && line_end ? 0 : 1;
    const bool number = read_number(field, '.').content != CsvNumber::Content::kText ||
                        read_number(field, ',').content != CsvNumber::Content::kText;
    numbers += number ? 1 : 0;
  }
  return fields == 0 ? 0 : static_cast<double>(numbers) / static_cast<double>(fields);
}

struct BlankRow {
  std::size_t fields = 0;
  bool begins_quoted = false;
};

// Returns the first rows as divided by blanks. Empty lines are not rows.
std::vector<BlankRow> rows_between_blanks(std::string_view text) {
  std::vector<BlankRow> rows;
  BlankRow row;
  bool quoted = false, inside = false;
  for (const char c : text.substr(0, kBytes)) {
    if (rows.size() == kRows) return rows;
    const bool line_end = !quoted && (c == '\n' || c == '\r');
    const bool blank = line_end || (!quoted && (c == ' ' || c == '\t'));
    if (!blank && !inside) {
      row.begins_quoted = row.begins_quoted || (row.fields == 0 && c == '"');
      ++row.fields;
    }
    inside = !blank;
    if (c == '"') quoted = !quoted;
    if (!line_end) continue;
    if (row.fields > 0) rows.push_back(row);
    row = {};
  }
  return rows;
}

// Returns true if the table looks like the output of R's write.table(), with fields separated by
// blanks. Each row but the first starts with a quoted field, and all have the same number of
// fields, except that the first one may have one less.
bool has_blanks_between(std::string_view text) {
  const std::vector<BlankRow> rows = rows_between_blanks(text);
  if (rows.size() < 2 || rows[1].fields < 2) return false;
  const bool as_first = rows[1].fields == rows[0].fields || rows[1].fields == rows[0].fields + 1;
  return as_first && std::all_of(rows.begin() + 1, rows.end(), [&](const BlankRow& row) {
           return row.begins_quoted && row.fields == rows[1].fields;
         });
}

struct Detected {
  char separator = ',';
  std::string others;   // candidates that fit as well
  bool is_fit = false;  // it divides all of the first rows alike
};

Detected detect(std::string_view text) {
  const std::vector<Counts> rows = count_in_rows(text);
  if (rows.empty()) return {};
  std::string found = fitting(kCandidates, rows);
  if (found.empty()) {
    if (has_blanks_between(text)) return {.separator = ' ', .is_fit = true};
    const auto counts = std::span(rows.front()).first(kCandidates.size());
    const auto most = std::ranges::max_element(counts) - counts.begin();
    return {.separator = kCandidates[static_cast<std::size_t>(most)]};
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < found.size(); ++i)
    if (share_of_numbers(text, found[i]) > share_of_numbers(text, found[best])) best = i;
  const char separator = found[best];
  found.erase(best, 1);
  return {.separator = separator, .others = found, .is_fit = true};
}

// Returns true if blanks divide all of the first rows into the same number of fields, at least two.
bool divided_by_blanks(std::string_view text) {
  const std::vector<BlankRow> rows = rows_between_blanks(text);
  return !rows.empty() && rows[0].fields > 1 && std::ranges::all_of(rows, [&](const BlankRow& row) {
    return row.fields == rows[0].fields;
  });
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

}  // namespace

std::size_t separator_line(std::string_view text) {
  if (!text.starts_with("sep=") && !text.starts_with("SEP=")) return 0;
  const std::size_t end = text.find_first_of("\r\n", 5);
  if (end != 5) return 0;
  return text.substr(end).starts_with("\r\n") ? 7 : 6;
}

bool names_separator(std::string_view text) { return separator_line(without_mark(text)) > 0; }

char csv_separator(const std::string& wanted, std::string_view text) {
  if (wanted == "auto") {
    text = without_mark(text);
    if (separator_line(text) == 0) return detect(text).separator;
    const char named = text[4];
    return named == '\t' ? named : csv_separator(std::string(1, named), text);
  }
  if (wanted == "tab" || wanted == "\\t") return '\t';
  if (wanted == "space" || wanted == " ") return ' ';
  const bool usable = wanted.size() == 1 &&
                      std::string_view(",;\t|:!#^~&").find(wanted[0]) != std::string_view::npos;
  if (!usable)
    throw ConfigError("the separator of CSV fields is '" + wanted +
                      "'; expected auto, tab, space or one of , ; | : ! # ^ ~ &");
  return wanted[0];
}

char separator_after(const std::string& before, std::string_view text) {
  if (before == "auto" || names_separator(text)) return csv_separator("auto", text);
  text = without_mark(text);
  const char known = csv_separator(before, text);
  const std::vector<Counts> rows = count_in_rows(text);
  const bool fits =
      known == ' ' ? divided_by_blanks(text) : !rows.empty() && !fitting({&known, 1}, rows).empty();
  if (fits) return known;
  const Detected found = detect(text);
  return found.is_fit ? found.separator : known;
}

std::string also_fitting(const std::string& wanted, std::string_view text) {
  if (wanted != "auto" || names_separator(text)) return "";
  std::string list;
  for (const char other : detect(without_mark(text)).others)
    list += (list.empty() ? "" : " and ") + separator_text(other);
  return list;
}

std::string separator_text(char separator) {
  if (separator == ' ') return "blanks";
  return separator == '\t' ? "a tab" : std::string("'") + separator + "'";
}

}  // namespace io
