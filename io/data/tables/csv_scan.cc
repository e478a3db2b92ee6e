// Scans row by row, first with a decimal point; then with a comma if that may read more numbers.
#include "io/data/tables/csv_scan.h"

#include <algorithm>

#include "io/data/tables/csv_number.h"

namespace io {
namespace {

std::vector<ColumnScan> scan_with(const CsvTable& table, std::size_t first,
                                  const CsvMissing& missing, char decimal) {
  std::vector<ColumnScan> scans(table.columns());
  for (ColumnScan& column : scans) column.decimal = decimal;
  for (std::size_t row = first; row < table.rows(); ++row)
    for (std::size_t c = 0; c < scans.size(); ++c) scans[c].add(table, c, row, missing);
  return scans;
}

// Evidence that the numbers of a column are integers with digits grouped by a sign, e.g. 1.234.
struct Groups {
  std::size_t first = kNoRow;  // row of the first number with the sign
  bool possible = false;       // all numbers with it have exactly three digits after it
  bool likely = false;         // and there are others, all of them integers below 1000
  bool refuted = false;        // some numbers with the sign cannot be grouped
};

enum class Shape { kOther, kSmall, kGrouped, kNoGroups };

// Returns the shape of "12", "1.234" or "12.5"; kOther is not a number.
Shape shape_of(std::string_view field, char sign) {
  for (const std::string_view prefix : {"-", "+", "\xE2\x88\x92"})
    if (field.starts_with(prefix)) {
      field.remove_prefix(prefix.size());
      break;
    }
  const std::size_t end = field.find_first_not_of("0123456789");
  const std::size_t digits = std::min(end, field.size());
  if (digits == field.size() && digits > 0)
    return digits <= 3 && (digits == 1 || field[0] != '0') ? Shape::kSmall : Shape::kNoGroups;
  if (digits > 0 && field[digits] == sign && digits <= 3 && field[0] != '0') {
    std::string_view rest = field.substr(digits);
    while (rest.size() >= 4 && rest[0] == sign && rest.find_first_not_of("0123456789", 1) >= 4)
      rest.remove_prefix(4);
    if (rest.empty()) return Shape::kGrouped;
  }
  const bool number = read_number(field, '.').content != CsvNumber::Content::kText ||
                      read_number(field, ',').content != CsvNumber::Content::kText;
  return number ? Shape::kNoGroups : Shape::kOther;
}

Groups groups_of(const CsvTable& table, std::size_t column, std::size_t first,
                 const CsvMissing& missing, char sign) {
  Groups groups;
  bool small = false, against = false;
  for (std::size_t row = first; row < table.rows(); ++row) {
    const std::string_view field = table.field(row, column);
    const Shape shape = field.empty() ? Shape::kOther : shape_of(field, sign);
    if (shape == Shape::kOther || (missing.has_numbers() && missing.has(field))) continue;
    against = against || shape == Shape::kNoGroups;
    small = small || shape == Shape::kSmall;
    if (shape == Shape::kGrouped) groups.first = std::min(groups.first, row);
    const bool has_sign = groups.first != kNoRow || field.find(sign) != std::string_view::npos;
    if (against && has_sign) return {.refuted = true};
  }
  groups.possible = groups.first != kNoRow;
  groups.likely = groups.possible && small;
  return groups;
}

// Determines the decimal sign of the columns whose numbers both signs read, from all evidence.
struct Signs {
  std::vector<Groups> points, commas;  // for each column, as groups
  bool point = false, comma = false;   // other columns have this decimal sign
  char separator = ',';

  bool has_comma(std::size_t c) const {
    if (comma != point) return comma;
    if (points[c].possible) return separator == ';' || (points[c].likely && separator != ',');
    if (points[c].refuted) return false;
    return separator == ';' && !commas[c].likely;
  }
};

// Returns true if a column, or a file without any decimals, may have a decimal comma. Fills in the
// groups of `signs`, and marks the columns of `points` whose numbers are unclear.
bool may_have_commas(const CsvTable& table, std::size_t first, const CsvMissing& missing,
                     std::vector<ColumnScan>& points, Signs& signs) {
  const bool semicolons = signs.separator == ';';
  bool may_be_comma = false, has_points = false;
  for (std::size_t c = 0; c < points.size(); ++c) {
    const bool grouped = points[c].grouped > 0 && semicolons;
    if (points[c].numbers > 0) signs.points[c] = groups_of(table, c, first, missing, '.');
    if (grouped) signs.commas[c] = groups_of(table, c, first, missing, ',');
    may_be_comma = may_be_comma || points[c].commas > 0 || grouped ||
                   (signs.points[c].possible && signs.separator != ',');
    has_points = has_points || signs.points[c].refuted;
    if (signs.points[c].likely) points[c].first_unclear = signs.points[c].first;
  }
  // Without any decimals a file of semicolons is taken to have commas: later ones have 1.234 as
  // a whole number then.
  return may_be_comma || (semicolons && !has_points);
}

// A text column in which a few cells happen to read as such numbers is no evidence.
bool reads_more(const ColumnScan& a, const ColumnScan& b) {
  return a.is_number() && a.numbers > b.numbers;
}

void count_row(std::size_t& count, std::size_t& first, std::size_t row) {
  ++count;
  first = std::min(first, row);
}

}  // namespace

bool ColumnScan::is_number() const {
  if (others == 0) return true;
  if (numbers == 0 || more_odd) return false;
  return others * 20 <= values() || (others == 1 && numbers >= 9);
}

void ColumnScan::add(const CsvTable& table, std::size_t column, std::size_t row,
                     const CsvMissing& markers) {
  using Found = CsvNumber::Content;
  const std::string_view field = table.field(row, column);
  if (field.empty()) {
    ++missing;
    return;
  }
  const bool may_mark = markers.has_numbers() && markers.has(field, decimal);
  const CsvNumber number = may_mark ? CsvNumber{} : read_number(field, decimal);
  if (number.content != Found::kNumber && (may_mark || markers.has(field))) {
    ++missing;
    return markers.has(field) ? count_row(marked, first_marked, row)
                              : count_row(equal, first_equal, row);
  }
  if (number.content != Found::kText) {
    ++numbers;
    if (number.grouped) count_row(grouped, first_grouped, row);
    if (number.content == Found::kTooLarge) first_large = std::min(first_large, row);
    if (decimal == ',' && first_comma == kNoRow && field.find(',') != std::string_view::npos)
      first_comma = row;
    return;
  }
  count_row(others, first_other, row);
  // Excludes addresses such as 192.168.100.200.
  const bool may_have_comma =
      field.find(',') != std::string_view::npos || std::ranges::count(field, '.') == 2;
  if (decimal == '.' && may_have_comma && read_number(field, ',').content == Found::kNumber)
    ++commas;
  add_odd(field);
}

void ColumnScan::add_odd(std::string_view field) {
  if (more_odd) return;
  const auto at = std::lower_bound(odd.begin(), odd.end(), field);
  if (at != odd.end() && *at == field) return;
  more_odd = odd.size() == kMaxOdd;
  if (!more_odd) odd.insert(at, field);
}

std::vector<ColumnScan> scan_columns(const CsvTable& table, std::size_t first,
                                     const CsvMissing& missing, CsvDecimal decimal) {
  if (decimal == CsvDecimal::kComma) return scan_with(table, first, missing, ',');
  std::vector<ColumnScan> points = scan_with(table, first, missing, '.');
  if (decimal == CsvDecimal::kPoint) return points;
  Signs signs{.points = std::vector<Groups>(points.size()),
              .commas = std::vector<Groups>(points.size()),
              .separator = table.separator()};
  if (!may_have_commas(table, first, missing, points, signs)) return points;
  std::vector<ColumnScan> commas = scan_with(table, first, missing, ',');
  bool likely_points = false;
  for (std::size_t c = 0; c < points.size(); ++c) {
    signs.comma = signs.comma || reads_more(commas[c], points[c]);
    signs.point = signs.point || reads_more(points[c], commas[c]);
    likely_points = likely_points || (signs.points[c].likely && signs.separator != ',');
  }
  signs.comma = signs.comma || (likely_points && !signs.point);
  for (std::size_t c = 0; c < points.size(); ++c) {
    const bool equal = commas[c].numbers == points[c].numbers;
    if (reads_more(commas[c], points[c]) || (equal && signs.has_comma(c)))
      points[c] = std::move(commas[c]);
  }
  return points;
}

}  // namespace io
