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

// The properties learned from one column. Numbers become (x - mean) / deviation, both over the
// training rows' values (deviation: of the population), and a missing number becomes the mean, i.e.
// 0. So does an odd cell that csv_scan.h accepts in a column of numbers. If training has no two
// different values, every value becomes 0, because no weight for others is trained. A column with
// other text is text. With at most kMaxOneHot different values in the training rows it
// becomes a 0/1 feature for each of them, in byte order, all 0 for a missing or a new value. With
// more, it becomes the position of its value in their order, standardized like a number.
struct CsvColumn {
  static constexpr std::size_t kMaxOneHot = 16;

  std::size_t index = 0;  // in the table
  bool text = false;
  char decimal = '.';                         // see csv_number.h
  std::shared_ptr<const CsvMissing> missing;  // not null
  std::vector<std::string> odd;  // for numbers: other texts in the table that count as missing
  std::vector<std::string> categories;  // for text, ascending
  double mean = 0, deviation = 1;
  bool constant = false;   // a number, or a position, of which training has at most one value
  bool too_close = false;  // constant, although training has numbers that differ after 15 digits

  bool one_hot() const { return text && categories.size() <= kMaxOneHot; }
  std::size_t features() const { return one_hot() ? categories.size() : 1; }
  bool is_missing(std::string_view field) const;  // empty, or a marker of missing values
  // Returns true if encode() supports the field: in a column of numbers a number, a missing value,
  // or an odd cell that also occurs in training.
  bool accepts(std::string_view field) const;
  // The meaning of a field in this column.
  enum class Cell : std::uint8_t {
    kValue,    // a number, or one of the categories
    kGrouped,  // a number with digits in groups, which may be decimals: "1,234"
    kMissing,  // no value, which includes odd cells
    kUnknown,  // not accepted, not one of the categories, or not the number of a constant column
  };
  Cell cell_of(std::string_view field) const;
  // Writes features() numbers; returns accepts(field), and writes zeros if that is false.
  bool encode(std::string_view field, float* out) const;
};

// Mean and deviation (of the population). `constant`: the numbers differ only by rounding.
struct Spread {
  double mean = 0, deviation = 0;
  bool constant = false;
};
Spread spread_of(std::span<const double> numbers);

// Learns type and decimal sign from the scan of all data rows, everything else from `training`
// rows. Throws DataError if a column of numbers has a non-finite one.
CsvColumn learn_column(const CsvTable& table, std::size_t index, const ColumnScan& scan,
                       std::shared_ptr<const CsvMissing> missing,
                       std::span<const std::size_t> training);

struct CsvLabels {
  std::vector<std::int32_t> ids;   // for rows [first, table.rows())
  std::vector<std::string> names;  // for each class; integers ascending, anything else in byte
                                   // order
};

// Returns the numbers of the column in rows [first, table.rows()), written with this `decimal`
// sign. `title` names the column in messages. Throws DataError with the row for a field that is
// missing, not a number, or not finite as float32.
std::vector<double> read_targets(const CsvTable& table, std::size_t index, std::size_t first,
                                 char decimal, const CsvMissing& missing, const std::string& title);

// Returns 1, 0 or, for a missing value, NaN. `title` names the column in messages. Throws DataError
// with the row for another field.
float read_flag(const CsvTable& table, std::size_t index, std::size_t row,
                const CsvMissing& missing, const std::string& title);

// Throws DataError: a missing label, a single class, or nearly as many classes as rows (a
// regression target, not a class).
CsvLabels read_labels(const CsvTable& table, std::size_t index, std::size_t first,
                      const CsvMissing& missing);
// Returns the classes of these labels, which may be a single one.
CsvLabels classes_of(std::span<const std::string_view> values);

}  // namespace io
