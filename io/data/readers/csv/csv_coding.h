// The coding of a run's table rows: the selected columns, what was learned from them, and how the
// cells of later files are read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_selection.h"

namespace io {

struct CsvCoding {
  CsvSelection selection;  // selection of the training table
  std::size_t table_columns = 0;
  std::string separator;            // as CsvOptions::separator has it; a file may have another one
  char found_separator = 0;         // of the training table if `separator` is "auto"; 0: unknown
  bool separator_is_fixed = false;  // no other one is detected
  std::shared_ptr<const CsvMissing> missing;  // not null
  char label_decimal = '.';        // for regression: the decimal sign of the target (csv_number.h)
  std::size_t features = 0;        // total for all columns
  std::vector<CsvColumn> columns;  // the selected ones, in order
};

// Returns the coding with `options` for the cells of files, those that options.given names: texts
// of missing values, decimal signs, the separator, and whether row 1 has names. What a cell counts
// as, e.g. the mean for a missing number, stays as it was learned. Throws ConfigError for a header
// of a table that had none in training; `source` names the coding.
std::shared_ptr<const CsvCoding> reading_with(std::shared_ptr<const CsvCoding> coding,
                                              const CsvOptions& options, const std::string& source);
// Returns the coding with that of its table; the same one if its samples are no rows of a table.
std::shared_ptr<const SampleCoding> reading_with(std::shared_ptr<const SampleCoding> coding,
                                                 const CsvOptions& options);

}  // namespace io
