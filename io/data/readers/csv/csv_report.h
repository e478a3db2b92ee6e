// What a CSV table's columns became, for the user.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/csv/csv_selection.h"
#include "io/data/tables/csv_scan.h"

namespace io {

// One line: "label species (3 classes); numbers: mass, year; categories: sex (2 values); left out:
// id (by option)". `columns` are those of the selection, learnt; `label` is the part before the
// first semicolon. Long lists are cut short.
std::string columns_text(const CsvTable& table, const CsvSelection& selection,
                         std::span<const CsvColumn> columns, const std::string& label);

// Lines about how the file was read, where that is not plain: a first row that may or may not be
// names, an index, names given twice, decimal commas, digits in groups, cells without a value and
// odd ones, and text columns that have mostly numbers or numbers with a unit. Each names a row and
// its value. `scans` are of the rows of data, one for each column of the table; `regression`: the
// label has numbers.
std::vector<std::string> reading_notices(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns,
                                         std::span<const ColumnScan> scans, bool regression);

// Lines about columns that are used but look like identifiers (whole numbers or text, another one
// in each of 20 rows or more), or like dates.
std::vector<std::string> column_warnings(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns);

}  // namespace io
