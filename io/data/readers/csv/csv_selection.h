// Which columns of a CSV table are read, and which one is the label.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/tables/csv_missing.h"
#include "io/data/tables/csv_scan.h"
#include "io/data/tables/csv_table.h"

namespace io {

struct CsvSelection {
  std::vector<std::string> header;  // unique names; empty: there is none
  std::size_t label = 0;
  std::vector<std::size_t> columns;   // the features, ascending
  std::vector<std::size_t> left_out;  // by --columns or --ignore-columns, or the index; ascending
  std::optional<std::size_t> index;   // a column without a name that numbers the rows
  bool doubtful = false;              // the first row might be what it was not taken for

  std::size_t first_row() const { return header.empty() ? 0 : 1; }
  // The name in the header, on one line and not too long, or "column 3".
  std::string title(std::size_t column) const;
  // The same with its number: "column 3 ('age')".
  std::string place(std::size_t column) const;
  // How options name it: by the header, or by its number where that cannot be.
  std::string option_name(std::size_t column) const;
};

// csv_files.h says how the header and the label are found; `scans` are of the rows after the first
// one. Throws ConfigError: no such column (with the nearest), a name that several columns have, the
// label among the columns to be ignored; DataError for a first row that is too short.
CsvSelection select_columns(const CsvTable& table, std::span<const ColumnScan> scans,
                            const CsvMissing& missing, const DatasetOptions& options);

}  // namespace io
