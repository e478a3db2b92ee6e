// Converts the columns of a CSV table to numeric features, and its labels to classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/sources/csv/csv_table.h"

namespace io {

// What stands for "no value": nothing, ?, NA, N/A, NaN and null, in any case.
bool is_missing(std::string_view field);

// What has been learnt of one column. Numbers become (x - mean) / deviation, both of the training
// rows' values (deviation: of the population; 1 where all are equal), and a missing number the
// mean, so 0. A column with any other text is text: with at most kMaxOneHot different values in
// the training rows it becomes a 0/1 feature for each of them, in byte order, all 0 for a missing
// or a new value; with more, it becomes the position of its value in their order, standardised like
// a number.
struct CsvColumn {
  static constexpr std::size_t kMaxOneHot = 16;

  std::size_t index = 0;  // in the table
  bool text = false;
  std::vector<std::string> categories;  // of text, ascending
  double mean = 0, deviation = 1;
  bool constant = false;  // a number, or a position, of which training has one value or none

  bool one_hot() const { return text && categories.size() <= kMaxOneHot; }
  std::size_t features() const { return one_hot() ? categories.size() : 1; }
  // Whether encode() knows what to make of it: in a column of numbers a number, or none.
  bool accepts(std::string_view field) const;
  // Writes features() numbers. REQUIRES: accepts(field).
  void encode(std::string_view field, float* out) const;
};

// Type from rows [first, table.rows()), everything else from `training` rows. Throws DataError
// where a column of numbers has one that is not finite.
CsvColumn learn_column(const CsvTable& table, std::size_t index, std::size_t first,
                       std::span<const std::size_t> training);

struct CsvLabels {
  std::vector<std::int32_t> ids;   // of rows [first, table.rows())
  std::vector<std::string> names;  // by class; whole numbers ascending, anything else in byte order
};

// The numbers of the column, of rows [first, table.rows()). `title` is what messages call it.
// Throws DataError, naming the row, for a field that is missing, no number, or not finite as
// float32.
std::vector<double> read_targets(const CsvTable& table, std::size_t index, std::size_t first,
                                 const std::string& title);

// Throws DataError: a missing label, a single class, or as good as every row another (a number to
// predict, not a class).
CsvLabels read_labels(const CsvTable& table, std::size_t index, std::size_t first);

}  // namespace io
