// Groups columns by their coding, and examines their values.
#include "io/data/readers/csv/csv_report.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "io/data/tables/csv_separator.h"

namespace io {
namespace {

constexpr std::size_t kFewestRows = 20, kMaxNames = 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == kMaxNames) return text + " and " + std::to_string(names.size() - i) + " more";
    text += (i == 0 ? "" : between) + names[i];
  }
  return text;
}

bool is_whole_number(std::string_view field) {
  if (!field.empty() && (field[0] == '-' || field[0] == '+')) field.remove_prefix(1);
  return !field.empty() && std::all_of(field.begin(), field.end(), is_digit);
}

// Returns the numbers between `separators`; empty if there is any other text.
std::vector<int> numbers_of(std::string_view text, std::string_view separators) {
  std::vector<int> numbers{0};
  std::size_t digits = 0;
  for (const char c : text) {
    if (is_digit(c) && ++digits <= 4) {
      numbers.back() = 10 * numbers.back() + (c - '0');
    } else if (digits > 0 && digits <= 4 && separators.find(c) != std::string_view::npos) {
      numbers.push_back(0);
      digits = 0;
    } else {
      return {};
    }
  }
  return digits > 0 ? numbers : std::vector<int>();
}

bool is_month_and_day(int month, int day) {
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

// Recognizes 2024-05-17, 17.05.2024, 5/17/24, with or without a time after it; 20240517.
bool is_date(std::string_view field) {
  if (field.size() == 8 && std::all_of(field.begin(), field.end(), is_digit)) {
    const auto number = [&](std::size_t at, std::size_t count) {
      return numbers_of(field.substr(at, count), "").front();
    };
    const int year = number(0, 4);
    return year >= 1900 && year < 2100 && is_month_and_day(number(4, 2), number(6, 2));
  }
  const std::vector<int> n = numbers_of(field.substr(0, field.find_first_of(" T")), "-/.");
  if (n.size() != 3) return false;
  return n[0] > 31 ? is_month_and_day(n[1], n[2])
                   : is_month_and_day(n[1], n[0]) || is_month_and_day(n[0], n[1]);
}

// Returns true if there are values and all of them are of the kind.
bool all_are(const CsvTable& table, const CsvColumn& column, std::size_t first,
             const std::function<bool(std::string_view)>& kind) {
  bool any = false;
  for (std::size_t row = first; row < table.rows(); ++row) {
    const std::string_view field = table.field(row, column.index);
    if (column.is_missing(field)) continue;
    if (!kind(field)) return false;
    any = true;
  }
  return any;
}

bool all_differ(const CsvTable& table, const CsvColumn& column, std::size_t first) {
  std::vector<std::string_view> values;
  for (std::size_t row = first; row < table.rows(); ++row) {
    if (column.is_missing(table.field(row, column.index))) return false;
    values.push_back(table.field(row, column.index));
  }
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

struct Named {
  std::vector<std::string> titles, options;

  void add(const CsvSelection& selection, std::size_t column) {
    titles.push_back(selection.title(column));
    options.push_back(selection.option_name(column));
  }
  bool one() const { return titles.size() == 1; }
};

std::string file_name(const CsvTable& table) {
  return std::filesystem::path(table.name()).filename().string();
}

}  // namespace

std::string columns_text(const CsvTable& table, const CsvSelection& selection,
                         std::span<const CsvColumn> columns, const std::string& label) {
  std::vector<std::string> numbers, categories, positions, constant, close, left_out;
  for (const CsvColumn& column : columns) {
    const std::string title = selection.title(column.index),
                      values = " (" + std::to_string(column.categories.size()) + " values)";
    if (column.features() == 0)
      left_out.push_back(title + " (no value in the training rows)");
    else if (column.one_hot())
      categories.push_back(title + values);
    else if (column.constant)
      (column.too_close ? close : constant).push_back(title);
    else if (column.text)
      positions.push_back(title + values);
    else
      numbers.push_back(title);
  }
  for (const std::size_t column : selection.left_out)
    left_out.push_back(selection.title(column) +
                       (selection.index == column ? " (the rows' index)" : " (by option)"));
  std::string text = file_name(table) + ": " + label;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += std::string("; ") + what + ": " + joined(names, ", ");
  };
  add("numbers", numbers);
  add("categories", categories);
  add("text by its position in sorted order", positions);
  add("always 0, for lack of different values", constant);
  add("always 0, for numbers that differ only after 15 digits", close);
  add("left out", left_out);
  if (table.separator() != ',') text += "; separated by " + separator_text(table.separator());
  return text;
}

std::vector<std::string> column_warnings(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns) {
  const std::size_t first = selection.first_row();
  Named identifiers, dates;
  for (const CsvColumn& column : columns) {
    const std::size_t c = column.index;
    if (all_are(table, column, first, is_date))
      dates.add(selection, c);
    else if (table.rows() >= first + kFewestRows &&
             (column.text || all_are(table, column, first, is_whole_number)) &&
             all_differ(table, column, first))
      identifiers.add(selection, c);
  }
  std::vector<std::string> lines;
  const auto warn = [&](const Named& found, const char* of_one, const char* of_several,
                        const std::string& advice) {
    if (!found.titles.empty())
      lines.push_back(file_name(table) + ": " + joined(found.titles, ", ") + " " +
                      (found.one() ? of_one : of_several) + advice);
  };
  const auto leave_out = [](const Named& found) {
    return std::string(found.one() ? "leave it" : "leave them") + " out with --ignore-columns " +
           joined(found.options, ",");
  };
  warn(identifiers, "has another value in every row, as an identifier does",
       "have another value in every row, as identifiers do",
       "; if there is nothing to learn from that, " + leave_out(identifiers));
  warn(dates, "looks like a date", "look like dates",
       ", which the model sees as mere numbers or categories; " + leave_out(dates) +
           ", or put year, month or weekday into columns of their own");
  return lines;
}

}  // namespace io
