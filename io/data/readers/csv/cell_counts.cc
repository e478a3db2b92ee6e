// Keeps a count and the first cell of each kind.
#include "io/data/readers/csv/cell_counts.h"

#include <utility>

#include "io/base/text/escape_text.h"
#include "io/data/tables/csv_number.h"

namespace io {

void CellCounts::Cells::add(std::string_view field, std::int64_t row) {
  constexpr std::size_t kLongest = 40;
  if (count++ > 0) return;
  first = "row " + std::to_string(row);
  if (!field.empty()) first += ": '" + base::escape_text(field.substr(0, kLongest)) + "'";
}

CellCounts::CellCounts(const CsvCoding& coding)
    : coding_(coding), columns_(coding.columns.size()) {}

void CellCounts::add(std::size_t column, std::string_view field, std::int64_t row) {
  Column& counts = columns_[column];
  switch (coding_.columns[column].cell_of(field)) {
    case CsvColumn::Cell::kUnknown:
      counts.unknown.add(field, [row] { return "row " + std::to_string(row); });
      break;
    case CsvColumn::Cell::kMissing:
      counts.missing.add(field, row);
      break;
    case CsvColumn::Cell::kGrouped:
      counts.grouped.add(field, row);
      break;
    case CsvColumn::Cell::kValue:
      break;
  }
}

void CellCounts::add_target(std::string_view field, std::int64_t row) {
  if (read_number(field, coding_.label_decimal).grouped) grouped_targets_.add(field, row);
}

std::vector<std::string> CellCounts::lines(const std::string& path, std::int64_t rows) const {
  std::vector<std::string> lines;
  const auto add_line = [&](const Cells& cells, const std::string& what) {
    if (cells.count > 0)
      lines.push_back(path + ": " + std::to_string(cells.count) + " of " + std::to_string(rows) +
                      " rows have " + what + " (first: " + cells.first + ")");
  };
  const auto add_grouped_line = [&](const Cells& cells, const std::string& title, char decimal) {
    const std::string sign = decimal == ',' ? "comma" : "point";
    add_line(cells, "digits in groups of three in " + title + ", for training had a decimal " +
                        sign + "; if these are decimals, write them with a " + sign);
  };
  const CsvSelection& selection = coding_.selection;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const CsvColumn& column = coding_.columns[i];
    const std::string title = selection.title(column.index);
    if (columns_[i].unknown.count() > 0)
      lines.push_back(path + ": " +
                      columns_[i].unknown.text("rows have a value in " + title, rows));
    add_line(columns_[i].missing, "no value in " + title + ", which counts as " +
                                      (column.one_hot() ? "none of its categories" : "its mean"));
    add_grouped_line(columns_[i].grouped, title, column.decimal);
  }
  add_grouped_line(grouped_targets_, selection.title(selection.label), coding_.label_decimal);
  return lines;
}

}  // namespace io
