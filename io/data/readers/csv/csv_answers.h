// The answers of a table's rows, labels or targets, and the draw of those for testing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/data/readers/csv/csv_columns.h"
#include "io/data/sources/dataset.h"

namespace io {

// Whether each row is for testing: of each class the same share, drawn, but never all its rows.
std::vector<bool> draw_test_rows(const CsvLabels& labels, double share, std::uint64_t seed);

// Rows to be predicted as numbers are of one kind, as if they were of one class.
CsvLabels one_class(std::size_t rows);

// Mean and deviation (of the population) of the training rows; `first`: the row of the first
// number. `file` stands for the table in messages. Throws DataError if all are equal.
TargetScale measure_target(const std::string& file, const std::string& title,
                           const std::vector<double>& numbers, std::size_t first,
                           const std::vector<std::size_t>& training);

}  // namespace io
