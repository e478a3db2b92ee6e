// Row by row, with a decimal point first; a second time with a comma if that may read more.
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
  const bool may_mark = markers.has_numbers() && markers.has(field);
  const CsvNumber number = may_mark ? CsvNumber{} : read_number(field, decimal);
  if (number.content != Found::kNumber && (may_mark || markers.has(field))) {
    ++missing;
    return count_row(marked, first_marked, row);
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
  if (decimal == '.' && field.find(',') != std::string_view::npos &&
      read_number(field, ',').content == Found::kNumber)
    ++commas;
  if (more_odd) return;
  const auto at = std::lower_bound(odd.begin(), odd.end(), field);
  if (at != odd.end() && *at == field) return;
  more_odd = odd.size() == kMaxOdd;
  if (!more_odd) odd.insert(at, field);
}

std::vector<ColumnScan> scan_columns(const CsvTable& table, std::size_t first,
                                     const CsvMissing& missing, const std::string& decimal) {
  if (decimal == "comma") return scan_with(table, first, missing, ',');
  std::vector<ColumnScan> points = scan_with(table, first, missing, '.');
  const bool semicolons = table.separator() == ';';
  const auto may_be_comma = [&](const ColumnScan& column) {
    return column.commas > 0 || (semicolons && column.grouped > 0);
  };
  if (decimal == "point" || std::ranges::none_of(points, may_be_comma)) return points;
  std::vector<ColumnScan> commas = scan_with(table, first, missing, ',');
  // A text column in which a few cells happen to read as such numbers tells nothing.
  const auto reads_more = [](const ColumnScan& a, const ColumnScan& b) {
    return a.is_number() && a.numbers > b.numbers;
  };
  bool comma = false, point = false;
  for (std::size_t c = 0; c < points.size(); ++c) {
    comma = comma || reads_more(commas[c], points[c]);
    point = point || reads_more(points[c], commas[c]);
  }
  const bool by_default = comma || (semicolons && !point);
  for (std::size_t c = 0; c < points.size(); ++c)
    if (reads_more(commas[c], points[c]) || (by_default && commas[c].numbers == points[c].numbers))
      points[c] = std::move(commas[c]);
  return points;
}

}  // namespace io
