// Detects if the first row of a CSV table contains the names of the columns.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/tables/csv_missing.h"
#include "io/data/tables/csv_scan.h"
#include "io/data/tables/csv_table.h"

namespace io {

struct HeaderDecision {
  bool header = false;
  bool doubtful = false;  // there is evidence for the opposite, which is reported to the user
};

// Compares the first row with all others, whose `scans` are one for each column:
// - text above numbers, or an empty field above an index, is evidence for names; a number above
//   numbers, a marker of missing values, and text that occurs again below it, for data;
// - consecutive integers are names if they are 0, 1, 2 ... or 1, 2, 3 ... beside an index, above a
//   column of numbers with decimals, or ten or more; and three years or the like beside text above
//   numbers;
// - integers that rise from column to column, above decimals, or texts that occur nowhere else in
//   columns where values do, are names if rows like that are rare among the others;
// - without columns of numbers the row is names if none of its fields occurs again and that would
//   be improbable for data, because the values of most rows do occur again.
HeaderDecision find_header(const CsvTable& table, std::span<const ColumnScan> scans,
                           const CsvMissing& missing);

// Returns true if the column, below its name, counts the rows: 0, 1, 2 ... or 1, 2, 3 ...; or has a
// different integer, or a different text, in every row.
bool is_index(const CsvTable& table, std::size_t column);

// Returns true if a field is the name of an index: R and pandas write it without a name, which
// pandas reads and then writes as "Unnamed: 0".
bool is_unnamed(std::string_view name);

// Returns "; names are not in UTF-8 ..." for messages about a name that is not found; "" if they
// are.
std::string encoding_hint(const std::vector<std::string>& names);

// Returns the names as they are used: a field without one is "column 3", and duplicates become
// NAME.1, NAME.2, as in pandas.
std::vector<std::string> unique_names(const std::vector<std::string>& names);

}  // namespace io
