// Converts the columns of a CSV table to numeric features, and its labels to classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/tables/csv_missing.h"
#include "io/data/tables/csv_scan.h"
#include "io/data/tables/csv_table.h"

namespace io {

// What has been learnt of one column. Numbers become (x - mean) / deviation, both of the training
// rows' values (deviation: of the population; 1 where all are equal), and a missing number the
// mean, so 0; so does an odd cell that csv_scan.h leaves to a column of numbers. A column with
// other text is text: with at most kMaxOneHot different values in the training rows it becomes a
// 0/1 feature for each of them, in byte order, all 0 for a missing or a new value; with more, it
// becomes the position of its value in their order, standardized like a number.
struct CsvColumn {
  static constexpr std::size_t kMaxOneHot = 16;

  std::size_t index = 0;  // in the table
  bool text = false;
  char decimal = '.';                         // csv_number.h
  std::shared_ptr<const CsvMissing> missing;  // not null
  std::vector<std::string> odd;  // of numbers: other texts of the table that count as missing
  std::vector<std::string> categories;  // of text, ascending
  double mean = 0, deviation = 1;
  bool constant = false;  // a number, or a position, of which training has one value or none

  bool one_hot() const { return text && categories.size() <= kMaxOneHot; }
  std::size_t features() const { return one_hot() ? categories.size() : 1; }
  // Whether encode() knows what to make of it: in a column of numbers a number, a missing value, or
  // an odd cell that training had, too.
  bool accepts(std::string_view field) const;
  // Whether training had it: a missing value, a number, or one of the categories.
  bool knows(std::string_view field) const;
  // Writes features() numbers; returns accepts(field), without which they are 0.
  bool encode(std::string_view field, float* out) const;
};

// Mean and deviation (of the population). `constant`: the numbers differ by rounding alone.
struct Spread {
  double mean = 0, deviation = 0;
  bool constant = false;
};
Spread spread_of(std::span<const double> numbers);

// Type and decimal sign from the scan of all rows of data, everything else from `training` rows.
// Throws DataError where a column of numbers has one that is not finite.
CsvColumn learn_column(const CsvTable& table, std::size_t index, const ColumnScan& scan,
                       std::shared_ptr<const CsvMissing> missing,
                       std::span<const std::size_t> training);

struct CsvLabels {
  std::vector<std::int32_t> ids;   // of rows [first, table.rows())
  std::vector<std::string> names;  // by class; whole numbers ascending, anything else in byte order
};

// The numbers of the column, of rows [first, table.rows()), written with this `decimal` sign.
// `title` is what messages call it. Throws DataError, naming the row, for a field that is missing,
// no number, or not finite as float32.
std::vector<double> read_targets(const CsvTable& table, std::size_t index, std::size_t first,
                                 char decimal, const CsvMissing& missing, const std::string& title);

// Throws DataError: a missing label, a single class, or as good as every row another (a number to
// predict, not a class).
CsvLabels read_labels(const CsvTable& table, std::size_t index, std::size_t first,
                      const CsvMissing& missing);
// The classes of these labels, which may be a single one.
CsvLabels classes_of(std::span<const std::string_view> values);

}  // namespace io
