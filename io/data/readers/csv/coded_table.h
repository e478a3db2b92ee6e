// Reads a table in the coding of a trained model.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads the rows of the file in the coding of options.coding: columns, categories and classes are
// found by their names. Splits them as read_csv_splits() does, or with options.parts kHoldOut not
// at all. Throws DataError with file and row: a column is missing, a cell is not a number although
// training had numbers, or there is no label or target.
DatasetSplits read_coded_table(const std::string& path, const DatasetOptions& options);

}  // namespace io
