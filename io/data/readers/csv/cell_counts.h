// Counts cells of a table that a trained model reads in a way that may not be meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/csv/csv_coding.h"

namespace io {

// Categories that training did not have, cells without a value, and numbers with digits in groups:
// in a table with another decimal sign than training's, these are decimals.
class CellCounts {
 public:
  // `coding` must outlive the counts.
  explicit CellCounts(const CsvCoding& coding);

  // Counts a field of the coding's column `column`, in this row of the file.
  void add(std::size_t column, std::string_view field, std::int64_t row);
  // Counts the target of a regression.
  void add_target(std::string_view field, std::int64_t row);

  // Returns a line for each kind of cell and column that occurs; `rows`: the rows of the file
  // `path` so far.
  std::vector<std::string> lines(const std::string& path, std::int64_t rows) const;

 private:
  struct Cells {
    std::int64_t count = 0;
    std::string first = {};  // "row 17: 'None'"
    void add(std::string_view field, std::int64_t row);
  };
  struct Column {
    UnknownNames unknown = {};
    Cells missing = {}, grouped = {};
  };

  const CsvCoding& coding_;
  std::vector<Column> columns_;  // for each column of the coding
  Cells grouped_targets_;
};

}  // namespace io
