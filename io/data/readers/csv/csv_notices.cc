// Formats notices about decisions that the reader of a table makes.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/base/text/escape_text.h"
#include "io/data/readers/csv/csv_report.h"
#include "io/data/tables/csv_header.h"

namespace io {
namespace {

constexpr std::size_t kMaxColumnsShown = 8;

// Recognizes "12%", "$7.50", "180 cm", and in accounting notation " 7.50 " and "(7.50)"; not dates
// and times.
bool has_unit(std::string_view field) {
  for (const std::string_view blank : {" ", "\xC2\xA0", "\xE2\x80\xAF"})  // no-break spaces
    while (field.starts_with(blank)) field.remove_prefix(blank.size());
  while (field.ends_with(' ')) field.remove_suffix(1);
  if (field.starts_with('(') && field.ends_with(')')) field = field.substr(1, field.size() - 2);
  for (const std::string_view sign : {"-", "\xE2\x88\x92", "+", "$", "\xC2\xA3", "\xE2\x82\xAC"})
    if (field.starts_with(sign)) field.remove_prefix(sign.size());
  if (field.empty() || field[0] < '0' || field[0] > '9') return false;
  const std::size_t end = field.find_first_not_of("0123456789.,");
  const bool part_of_date = end != std::string_view::npos &&
                            std::string_view("-/:T").find(field[end]) != std::string_view::npos;
  return !part_of_date && std::count(field.begin(), field.end(), '.') < 2;
}

// Collects several columns for one line.
class ColumnList {
 public:
  void add(std::string text) {
    if (texts_.size() < kMaxColumnsShown)
      texts_.push_back(std::move(text));
    else
      ++more_;
  }
  bool empty() const { return texts_.empty(); }
  std::string text() const {
    std::string all;
    for (const std::string& one : texts_) all += (all.empty() ? "" : "; ") + one;
    return all + (more_ > 0 ? "; and in " + std::to_string(more_) + " more columns" : "");
  }

 private:
  std::vector<std::string> texts_;
  std::size_t more_ = 0;
};

class Notices {
 public:
  Notices(const CsvTable& table, const CsvSelection& selection, std::span<const CsvColumn> columns,
          std::span<const ColumnScan> scans, bool regression)
      : table_(table),
        selection_(selection),
        columns_(columns),
        scans_(scans),
        regression_(regression) {}

  std::vector<std::string> lines() {
    add_header();
    add_names();
    add_commas();
    add_groups();
    add_missing();
    add_mixed();
    add_units();
    return std::move(lines_);
  }

 private:
  void add_notice(const std::string& text) {
    lines_.push_back(std::filesystem::path(table_.name()).filename().string() + ": " + text);
  }

  std::string value(std::size_t row, std::size_t column) const {
    constexpr std::size_t kLongest = 40;
    const std::string_view field = table_.field(row, column);
    std::string shown("'");
    shown += base::escape_text(field.substr(0, kLongest));
    return shown + (field.size() > kLongest ? "...'" : "'");
  }
  // Formats "row 17: 'None'".
  std::string at(std::size_t row, std::size_t column) const {
    return "row " + std::to_string(row + 1) + ": " + value(row, column);
  }
  std::size_t rows() const { return table_.rows() - selection_.first_row(); }

  void add_header() {
    if (!selection_.doubtful) return;
    std::string first;
    for (std::size_t c = 0; c < std::min<std::size_t>(table_.columns(), 4); ++c)
      first += (c > 0 ? ", " : "") + value(0, c);
    first = "row 1 (" + first + (table_.columns() > 4 ? ", ...)" : ")");
    if (selection_.header.empty())
      add_notice(first +
                 " is read as data; if it has the names of the columns, give --csv-header yes");
    else
      add_notice(first +
                 " is read as the names of the columns; if it is data, give --csv-header no");
  }

  void add_names() {
    if (selection_.index)
      add_notice(
          "column 1 has no name and another value in every row (" + at(1, 0) +
          "): it is read as the rows' index and left out; --columns takes columns by number");
    else
      add_repeated_index();
    ColumnList renamed;
    for (std::size_t c = 0; c < selection_.header.size(); ++c)
      if (!table_.field(0, c).empty() && selection_.header[c] != table_.field(0, c))
        renamed.add("column " + std::to_string(c + 1) + " is the second one called " + value(0, c) +
                    " and becomes '" + base::escape_text(selection_.header[c]) + "'");
    if (!renamed.empty()) add_notice(renamed.text());
  }

  // Warns of a first column without a name that is used, e.g. row numbers of concatenated tables.
  void add_repeated_index() {
    if (selection_.header.empty() || !is_unnamed(table_.field(0, 0))) return;
    if (std::ranges::none_of(columns_, [](const CsvColumn& column) { return column.index == 0; }))
      return;
    std::map<std::string_view, std::size_t> rows;
    for (std::size_t row = 1; row < table_.rows(); ++row) {
      const auto [first, added] = rows.emplace(table_.field(row, 0), row);
      if (added) continue;
      add_notice("column 1 has no name and repeats values (" + at(first->second, 0) + ", row " +
                 std::to_string(row + 1) +
                 " again): it is used as a feature; if it numbers rows, leave it out with "
                 "--ignore-columns 1");
      return;
    }
  }

  // Visits the features, and the label of a regression: class labels are texts, even if they look
  // like numbers.
  template <typename Use>
  void for_numbers(const Use& use) const {
    for (const CsvColumn& column : columns_)
      if (!column.text) use(column.index, scans_[column.index]);
    if (regression_) use(selection_.label, scans_[selection_.label]);
  }

  void add_commas() {
    ColumnList commas;
    for_numbers([&](std::size_t c, const ColumnScan& scan) {
      if (scan.first_comma != kNoRow)
        commas.add(selection_.place(c) + " (" + at(scan.first_comma, c) + ")");
    });
    if (!commas.empty())
      add_notice("numbers have a decimal comma (--csv-decimal point reads them with a point) in " +
                 commas.text());
  }

  void add_groups() {
    for (const char decimal : {'.', ','}) {
      const std::string other = decimal == '.' ? "comma" : "point";
      ColumnList groups, unclear;
      for_numbers([&](std::size_t c, const ColumnScan& scan) {
        if (scan.decimal != decimal) return;
        if (scan.grouped > 0)
          groups.add(selection_.place(c) + " (" + at(scan.first_grouped, c) + ")");
        if (scan.first_unclear != kNoRow)
          unclear.add(selection_.place(c) + " (" + at(scan.first_unclear, c) + ")");
      });
      if (!groups.empty())
        add_notice(
            "numbers have digits in groups of three (if these are decimals, give --csv-decimal " +
            other + ") in " + groups.text());
      if (!unclear.empty())
        add_notice(
            "numbers are read with a decimal point (if these are digits in groups of three, give "
            "--csv-decimal comma) in " +
            unclear.text());
    }
  }

  void add_missing() {
    ColumnList missing;
    for (const CsvColumn& column : columns_) {
      const std::size_t c = column.index;
      const ColumnScan& scan = scans_[c];
      std::size_t cells = scan.marked, row = scan.first_marked;
      if (!column.text) {
        cells += scan.equal + scan.others;
        row = std::min({row, scan.first_equal, scan.first_other});
      }
      if (cells == 0) continue;
      missing.add(selection_.place(c) + ": " + std::to_string(cells) + " of " +
                  std::to_string(rows()) + " cells " +
                  (column.text  ? cells == 1 ? "has no value" : "have no value"
                   : cells == 1 ? "is not a number"
                                : "are not numbers") +
                  " (" + at(row, c) + ")");
    }
    if (!missing.empty()) add_notice("read as missing: " + missing.text());
  }

  void add_mixed() {
    ColumnList mixed;
    for (const CsvColumn& column : columns_) {
      const ColumnScan& scan = scans_[column.index];
      if (!column.text || scan.numbers * 2 < scan.values()) continue;
      mixed.add(selection_.place(column.index) + ": " + std::to_string(scan.others) + " of " +
                std::to_string(rows()) + " cells " + (scan.others == 1 ? "is" : "are") + " not " +
                (scan.others == 1 ? "a number" : "numbers") + " (" +
                at(scan.first_other, column.index) + ")");
    }
    if (!mixed.empty())
      add_notice("read as text although most cells are numbers: " + mixed.text() +
                 "; --csv-missing can list the other cells as missing values");
  }

  void add_units() {
    ColumnList units;
    for (const CsvColumn& column : columns_) {
      const ColumnScan& scan = scans_[column.index];
      if (!column.text || column.one_hot() || scan.numbers * 2 >= scan.values()) continue;
      std::size_t found = 0;
      for (std::size_t row = selection_.first_row(); row < table_.rows(); ++row)
        found += has_unit(table_.field(row, column.index)) ? 1 : 0;
      if (found * 20 >= scan.values() * 19)
        units.add(selection_.place(column.index) + " (" + at(scan.first_other, column.index) + ")");
    }
    if (!units.empty())
      add_notice(
          "numbers with a unit, blanks or parentheses are read as text, by position in sorted "
          "order: " +
          units.text() + "; remove these, or leave the column out with --ignore-columns");
  }

  const CsvTable& table_;
  const CsvSelection& selection_;
  const std::span<const CsvColumn> columns_;
  const std::span<const ColumnScan> scans_;
  const bool regression_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> reading_notices(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns,
                                         std::span<const ColumnScan> scans, bool regression) {
  return Notices(table, selection, columns, scans, regression).lines();
}

}  // namespace io
