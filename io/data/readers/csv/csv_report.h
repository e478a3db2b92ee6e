// Reports the coding of a CSV table's columns to the user.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_selection.h"
#include "io/data/tables/csv_scan.h"

namespace io {

// Returns one line: "label species (3 classes); numbers: mass, year; categories: sex (2 values);
// left out: id (by option)". `columns` are the learned columns of the selection; `label` is the
// part before the first semicolon. Long lists are truncated.
std::string columns_text(const CsvTable& table, const CsvSelection& selection,
                         std::span<const CsvColumn> columns, const std::string& label);

// Returns lines about doubtful decisions in reading the file: a first row that may or may not
// contain names, an index, duplicate names, decimal commas, digits in groups, cells without a value
// and odd ones, and text columns that have mostly numbers or numbers with a unit. Each names a row
// and its value. `scans` cover the data rows, one for each column of the table; `regression`: the
// label has numbers.
std::vector<std::string> reading_notices(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns,
                                         std::span<const ColumnScan> scans, bool regression);

// Returns lines about columns that are used but look like identifiers (integers or text, distinct
// in each of 20 rows or more), or like dates.
std::vector<std::string> column_warnings(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns);

}  // namespace io
