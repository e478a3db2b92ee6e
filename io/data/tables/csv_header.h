// Whether the first row of a CSV table has the names of the columns.
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
  bool doubtful = false;  // something speaks for the opposite: worth a line to the user
};

// Compares the first row with all others, whose `scans` are one for each column:
// - text above numbers, or an empty field above an index, speaks for names; a number above
//   numbers, a marker of missing values, and text that occurs again below it, for data;
// - whole numbers in sequence are names, if they are 0, 1, 2 ... or 1, 2, 3 ... beside an index,
//   above a column of numbers with decimals, or ten or more; and three years or the like beside
//   text above numbers;
// - whole numbers that rise from column to column, above decimals, or texts that occur nowhere else
//   in columns where values do, are names if rows like that are rare among the others;
// - without columns of numbers the row is names if none of its fields occurs again, where that
//   would be improbable for data: the values of most rows do occur again.
HeaderDecision find_header(const CsvTable& table, std::span<const ColumnScan> scans,
                           const CsvMissing& missing);

// Whether the column, below its name, counts the rows: 0, 1, 2 ... or 1, 2, 3 ...; or has another
// whole number, or another text, in every one of them.
bool is_index(const CsvTable& table, std::size_t column);

// Whether a field is the name of an index: R and pandas write it without a name, which pandas reads
// and then writes as "Unnamed: 0".
bool is_unnamed(std::string_view name);

// "; names are not in UTF-8 ..." for messages about a name that is not found; "" if they are.
std::string encoding_hint(const std::vector<std::string>& names);

// The names as they are used: a field without one is "column 3", and of equal ones the later become
// NAME.1, NAME.2, as pandas has it.
std::vector<std::string> unique_names(const std::vector<std::string>& names);

}  // namespace io
