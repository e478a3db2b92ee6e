// The coding of a run's table rows: the selected columns, and what was learned from them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_selection.h"

namespace io {

struct CsvCoding {
  CsvSelection selection;  // selection of the training table
  std::size_t table_columns = 0;
  std::string separator;                      // as CsvOptions::separator has it
  std::shared_ptr<const CsvMissing> missing;  // not null
  char label_decimal = '.';        // for regression: the decimal sign of the target (csv_number.h)
  std::size_t features = 0;        // total for all columns
  std::vector<CsvColumn> columns;  // the selected ones, in order
};

}  // namespace io
