// Which columns of a CSV table are read, and which one is the label.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/data/sources/csv/csv_table.h"
#include "io/data/sources/dataset.h"

namespace io {

struct CsvSelection {
  std::vector<std::string> header;  // empty: there is none
  std::size_t label = 0;
  std::vector<std::size_t> columns;   // the features, ascending
  std::vector<std::size_t> left_out;  // by --columns or --ignore-columns, ascending

  std::size_t first_row() const { return header.empty() ? 0 : 1; }
  // The name in the header, on one line and not too long, or "column 3".
  std::string title(std::size_t column) const;
  // How options name it: by the header, or by its number where that cannot be.
  std::string option_name(std::size_t column) const;
};

// csv_files.h says how the header and the label are found. Throws ConfigError: no such column (with
// the nearest), a name that several columns have, the label among the columns to be ignored.
CsvSelection select_columns(const CsvTable& table, const DatasetOptions& options);

}  // namespace io
