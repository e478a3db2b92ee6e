// How a run reads the rows of its table: which columns, and what was learnt of them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_selection.h"

namespace io {

struct CsvCoding {
  CsvSelection selection;  // of the training table
  std::size_t table_columns = 0;
  std::string separator;                      // as CsvOptions::separator has it
  std::shared_ptr<const CsvMissing> missing;  // not null
  char label_decimal = '.';        // a regression: how its target is written (csv_number.h)
  std::size_t features = 0;        // of all columns together
  std::vector<CsvColumn> columns;  // those of the selection, in its order
};

}  // namespace io
