// Selects the columns of a CSV table that are read, and the label.
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
  std::vector<std::string> header;  // unique names; empty: there is no header
  std::size_t label = 0;
  std::vector<std::size_t> more_labels;  // of a sample with several, after `label`
  std::vector<std::size_t> columns;      // the features, ascending
  std::vector<std::size_t> left_out;  // by --columns or --ignore-columns, or the index; ascending
  std::optional<std::size_t> index;   // a column without a name that contains row numbers
  bool doubtful = false;              // the decision about the first row is uncertain

  std::vector<std::size_t> labels() const;  // all label columns
  std::size_t first_row() const { return header.empty() ? 0 : 1; }
  // The name in the header, on one line and shortened, or "column 3".
  std::string title(std::size_t column) const;
  // The same with its number: "column 3 ('age')".
  std::string place(std::size_t column) const;
  std::vector<std::string> label_titles() const;
  // The name for options: from the header, or its number if that is not possible.
  std::string option_name(std::size_t column) const;
};

// Returns the parts of --label-column; a single label may have a comma in its name.
std::vector<std::string> label_names(const std::string& option, Task task);

// Returns the columns that have these names in the header (empty: there is none) or, if none has,
// these numbers from 1. For each column `used` tells if messages do not propose it. Throws
// ConfigError: no such column (with the nearest one), a name that several columns have, a column
// that is named twice.
std::vector<std::size_t> label_columns(const CsvTable& table,
                                       const std::vector<std::string>& header,
                                       const std::vector<std::string>& names,
                                       std::vector<bool> used);

// csv_files.h describes how the header and the label are found; `scans` cover the rows after the
// first one. Throws ConfigError: no such column (with the nearest one that is free), a name that
// several columns have, the label among the ignored columns; DataError for a first row that is too
// short.
CsvSelection select_columns(const CsvTable& table, std::span<const ColumnScan> scans,
                            const CsvMissing& missing, const DatasetOptions& options);

}  // namespace io
