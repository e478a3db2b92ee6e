// What a CSV table's columns became, for the user.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/data/sources/csv/csv_columns.h"
#include "io/data/sources/csv/csv_selection.h"

namespace io {

// One line: "label species (3 classes); numbers: mass, year; categories: sex (2 values); left out:
// id (by option)". `columns` are those of the selection, learnt; `label` is the part before the
// first semicolon. Long lists are cut short.
std::string columns_text(const CsvTable& table, const CsvSelection& selection,
                         std::span<const CsvColumn> columns, const std::string& label);

// Lines about columns that are used but look like identifiers (whole numbers or text, another one
// in each of 20 rows or more), like dates, or like numbers with a decimal comma.
std::vector<std::string> column_warnings(const CsvTable& table, const CsvSelection& selection,
                                         std::span<const CsvColumn> columns);

}  // namespace io
