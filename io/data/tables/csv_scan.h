// Scans the cells of a table's columns, before anything is learned from them.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/tables/csv_missing.h"
#include "io/data/tables/csv_table.h"

namespace io {

inline constexpr std::size_t kNoRow = std::numeric_limits<std::size_t>::max();

enum class CsvDecimal { kAuto, kPoint, kComma };

struct ColumnScan {
  static constexpr std::size_t kMaxOdd = 64;

  char decimal = '.';  // '.' or ',': the decimal sign of the column's numbers
  std::size_t numbers = 0, missing = 0, others = 0;
  std::size_t marked = 0;   // missing cells that are not empty, but one of the markers
  std::size_t equal = 0;    // missing cells that are no marker, but an equal number
  std::size_t grouped = 0;  // numbers like 1,234
  std::size_t commas = 0;   // other cells that would be numbers with a decimal comma
  // Rows of the first such cell, or kNoRow.
  std::size_t first_marked = kNoRow, first_equal = kNoRow, first_other = kNoRow,
              first_grouped = kNoRow, first_large = kNoRow,
              first_comma = kNoRow;   // too large for float32
  std::vector<std::string_view> odd;  // distinct values of `others`, ascending, at most kMaxOdd
  bool more_odd = false;              // there are more
  // If decimal signs are detected: numbers that may also be integers with digits in groups. Row of
  // the first one, or kNoRow.
  std::size_t first_unclear = kNoRow;

  std::size_t values() const { return numbers + others; }
  // Returns true for a column of numbers, apart from a few odd cells that then count as missing: at
  // most 5 % of the values, or a single one of ten or more. True also for a column without any
  // value.
  bool is_number() const;
  void add(const CsvTable& table, std::size_t column, std::size_t row, const CsvMissing& missing);

 private:
  void add_odd(std::string_view field);
};

// Scans all columns, from row `first` on. With CsvDecimal::kAuto each column has the decimal sign
// that reads more of its cells as numbers. Cells that both of them read (1,234) are read as the
// other columns are. If none of these decides, the sign groups digits if it stands before
// exactly three of them in some cells, and the others are whole numbers below 1000; a point also
// without others, if the fields are separated by semicolons, but none where commas separate them.
// Else it is a decimal sign: a comma in a file of semicolons, a point in all.
std::vector<ColumnScan> scan_columns(const CsvTable& table, std::size_t first,
                                     const CsvMissing& missing, CsvDecimal decimal);

}  // namespace io
