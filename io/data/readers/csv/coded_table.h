// A table read as a trained model takes it.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// The rows of the file as options.coding states it: columns, categories and classes by their names.
// Split as read_csv_splits() does, or with options.parts kHoldOut not at all. Throws DataError,
// naming file and row: a column that is missing, a cell that is no number where training had
// numbers, no label or target.
DatasetSplits read_coded_table(const std::string& path, const DatasetOptions& options);

}  // namespace io
