// Collects evidence for and against names in the first row.
#include "io/data/tables/csv_header.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "io/base/text/escape_text.h"
#include "io/base/text/utf8.h"
#include "io/data/tables/csv_number.h"

namespace io {
namespace {

constexpr double kImprobable = 0.05, kDoubtful = 0.25;  // probability that the first row is data

// Returns true if a cell below the first row equals it.
bool occurs_again(const CsvTable& table, std::size_t column) {
  const std::string_view name = table.field(0, column);
  for (std::size_t row = 1; row < table.rows(); ++row)
    if (table.field(row, column) == name) return true;
  return false;
}

// Estimates the probability that the value of a row occurs in no other row, from the other rows
// (the estimate of Good and Turing, with one more such row).
double share_of_single_values(const CsvTable& table, std::size_t column) {
  std::vector<std::string_view> values;
  for (std::size_t row = 1; row < table.rows(); ++row) values.push_back(table.field(row, column));
  std::sort(values.begin(), values.end());
  std::size_t single = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool before = i > 0 && values[i - 1] == values[i],
               after = i + 1 < values.size() && values[i + 1] == values[i];
    single += before || after ? 0 : 1;
  }
  return static_cast<double>(single + 1) / static_cast<double>(values.size() + 1);
}

// Returns true if the column has numbers, and none of them is written as an integer.
bool has_decimals_only(const CsvTable& table, std::size_t column, const CsvMissing& missing) {
  std::size_t numbers = 0;
  for (std::size_t row = 1; row < table.rows(); ++row) {
    const std::string_view field = table.field(row, column);
    if (missing.has(field)) continue;
    if (whole_number(field)) return false;
    ++numbers;
  }
  return numbers >= 2;
}

// For each column, the number of fields of the first row around it that are consecutive integers:
// 7, 8, 9.
std::vector<std::size_t> sequence_lengths(const CsvTable& table) {
  std::vector<std::size_t> lengths(table.columns(), 0);
  for (std::size_t c = 0; c < table.columns();) {
    const auto start = whole_number(table.field(0, c));
    std::size_t end = c + 1;
    while (start && end < table.columns() &&
           whole_number(table.field(0, end)) == *start + static_cast<std::int64_t>(end - c))
      ++end;
    if (start)
      std::fill(lengths.begin() + static_cast<std::ptrdiff_t>(c),
                lengths.begin() + static_cast<std::ptrdiff_t>(end), end - c);
    c = end;
  }
  return lengths;
}

// Recognizes names 0, 1, 2 ... or 1, 2, 3 ..., which programs write if there are no names.
bool is_numbered_header(const CsvTable& table, std::span<const ColumnScan> scans,
                        const CsvMissing& missing, std::span<const std::size_t> sequences) {
  const std::size_t first = table.field(0, 0).empty() ? 1 : 0, count = table.columns() - first;
  if (count < 2 || sequences[first] != count) return false;
  const auto start = whole_number(table.field(0, first));
  if (start != 0 && start != 1) return false;
  if (first == 1 && is_index(table, 0)) return true;
  std::size_t unique = 0;
  for (std::size_t c = first; c < table.columns(); ++c) {
    if (scans[c].numbers > 0 && scans[c].is_number() && has_decimals_only(table, c, missing))
      return true;
    unique += occurs_again(table, c) ? 0 : 1;
  }
  return count >= 10 && 2 * unique > count;
}

// The evidence in the first row for and against names.
struct FirstRow {
  std::size_t for_names = 0, for_data = 0;  // cells that speak for the one or the other
  std::size_t numbers_above = 0;            // numbers, which no name looks like
  bool has_numeric_columns = false;         // below it
  std::vector<std::size_t> whole;           // columns in which it has a whole number above numbers
  bool rising = false;             // those are two or more, each greater than the one before
  bool has_other_numbers = false;  // with decimals, above numbers
  std::vector<std::size_t> texts;  // columns of texts in which its own occurs nowhere else
};

bool rises(const CsvTable& table, std::size_t row, const std::vector<std::size_t>& columns) {
  if (columns.size() < 2) return false;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto number = whole_number(table.field(row, columns[i]));
    if (!number) return false;
    if (i > 0 && *number <= *whole_number(table.field(row, columns[i - 1]))) return false;
  }
  return true;
}

void weigh_number(const CsvTable& table, std::size_t c, bool numbers, bool in_sequence,
                  FirstRow& first) {
  const bool whole = whole_number(table.field(0, c)).has_value();
  if (numbers && whole) first.whole.push_back(c);
  first.has_other_numbers = first.has_other_numbers || !whole;
  if (!in_sequence || occurs_again(table, c)) ++first.numbers_above;
}

FirstRow weigh_first_row(const CsvTable& table, std::span<const ColumnScan> scans,
                         const CsvMissing& missing, std::span<const std::size_t> sequences) {
  FirstRow first;
  for (std::size_t c = 0; c < table.columns(); ++c) {
    const std::string_view name = table.field(0, c);
    // Mostly: a column that odd cells make text has a name as others have.
    const bool numbers = scans[c].numbers > 0 && 2 * scans[c].numbers >= scans[c].values();
    first.has_numeric_columns = first.has_numeric_columns || numbers;
    const bool number = read_number(name, scans[c].decimal).content != CsvNumber::Content::kText;
    if (name.empty()) {
      first.for_names += c == 0 && is_index(table, c) ? 1 : 0;
    } else if (missing.has(name)) {
      ++first.for_data;
    } else if (number) {
      weigh_number(table, c, numbers, sequences[c] >= 3, first);
    } else if (occurs_again(table, c)) {
      ++first.for_data;
    } else if (numbers) {
      ++first.for_names;
    } else {
      first.texts.push_back(c);
    }
  }
  first.rising = rises(table, 0, first.whole);
  return first;
}

// How probable it is that a row of data looks like the first one: whole numbers in the same
// columns, rising if they rise there, and texts that occur in no other row. As the other rows have
// it, and for texts as if columns did not depend on each other. Returns 1 if no cell indicates
// names.
double chance_of_data(const CsvTable& table, const FirstRow& first) {
  double chance = 1;
  for (const std::size_t c : first.texts) chance *= share_of_single_values(table, c);
  if (first.has_other_numbers || (!first.rising && first.texts.empty())) return chance;
  std::size_t alike = 0;
  for (std::size_t row = 1; row < table.rows(); ++row) {
    const bool whole = std::ranges::all_of(
        first.whole, [&](std::size_t c) { return whole_number(table.field(row, c)).has_value(); });
    alike += whole && (!first.rising || rises(table, row, first.whole)) ? 1 : 0;
  }
  return chance * static_cast<double>(alike + 1) / static_cast<double>(table.rows());
}

}  // namespace

bool is_index(const CsvTable& table, std::size_t column) {
  std::vector<std::string_view> values;
  std::size_t numbers = 0;
  bool counts = true;
  for (std::size_t row = 1; row < table.rows(); ++row) {
    const std::string_view field = table.field(row, column);
    if (field.empty()) return false;
    const auto number = whole_number(field);
    numbers += number ? 1 : 0;
    counts = counts && number &&
             *number == *whole_number(table.field(1, column)) + static_cast<std::int64_t>(row) - 1;
    values.push_back(field);
  }
  if (values.empty()) return false;
  if (counts) return *whole_number(values[0]) == 0 || *whole_number(values[0]) == 1 || numbers > 1;
  const bool texts = std::ranges::none_of(values, [](std::string_view value) {
    return read_number(value, '.').content != CsvNumber::Content::kText;
  });
  if (numbers != values.size() && !texts) return false;
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

HeaderDecision find_header(const CsvTable& table, std::span<const ColumnScan> scans,
                           const CsvMissing& missing) {
  if (table.rows() < 2) return {};
  const std::vector<std::size_t> sequences = sequence_lengths(table);
  if (is_numbered_header(table, scans, missing, sequences))
    return {.header = true, .doubtful = true};
  const FirstRow first = weigh_first_row(table, scans, missing, sequences);
  if (first.for_data == 0 && first.for_names <= first.numbers_above && first.has_numeric_columns) {
    const double likely = chance_of_data(table, first);
    const bool header = likely < kImprobable && !first.has_other_numbers;
    return {.header = header, .doubtful = header || first.for_names > 0 || likely < kDoubtful};
  }
  const std::size_t for_data = first.for_data + first.numbers_above;
  if (first.for_names > 0 || for_data > 0)
    return {.header = first.for_names > for_data, .doubtful = first.for_names > 0 && for_data > 0};
  double chance = 1;
  for (std::size_t c = 0; c < table.columns(); ++c) {
    if (scans[c].others == 0) continue;  // no value at all
    if (table.field(0, c).empty()) return {};
    chance *= share_of_single_values(table, c);
  }
  const bool header = chance < kImprobable;
  return {.header = header, .doubtful = header};
}

bool is_unnamed(std::string_view name) { return name.empty() || name == "Unnamed: 0"; }

std::string encoding_hint(const std::vector<std::string>& names) {
  const auto other =
      std::ranges::find_if(names, [](const std::string& name) { return !base::is_utf8(name); });
  if (other == names.end()) return "";
  return "; '" + base::escape_text(*other) +
         "' is not UTF-8: save the file as UTF-8, or convert it, as iconv -f latin1 -t utf-8 does";
}

std::vector<std::string> unique_names(const std::vector<std::string>& names) {
  std::vector<std::string> unique;
  const std::set<std::string> given(names.begin(), names.end());
  std::set<std::string> taken;
  for (std::size_t c = 0; c < names.size(); ++c) {
    std::string name = names[c].empty() ? "column " + std::to_string(c + 1) : names[c];
    const std::string stem = name;
    for (int n = 1; taken.contains(name) || (name != names[c] && given.contains(name)); ++n)
      name = stem + "." + std::to_string(n);
    taken.insert(name);
    unique.push_back(std::move(name));
  }
  return unique;
}

}  // namespace io
