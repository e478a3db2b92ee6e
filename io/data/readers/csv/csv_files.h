// Reads a CSV file as a data set: selects the label column and the test rows.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads options.csv.annotations, or else the only *.csv (or *.csv.gz) of options.directory;
// csv_table.h and csv_columns.h describe how.
//
// The first row is a header if options.csv.header is set so, by the rules of csv_header.h, or
// if options.csv.label_column is one of its fields and no number. An index in a first column
// without a name is left out. What a user would want to know of such decisions is in `warnings` of
// the result. The label is the column of that name (or number, from 1), by default the last.
// options.csv.columns or options.csv.ignored_columns choose among the others, by name or number.
//
// options.csv.test_share of each class's rows, rounded, are for testing, but never the last of a
// class: a test label has always been seen in training. With Task::kRegression the label
// column is a target: every field must be a number, the share is that of all rows, and numbers are
// standardized by the training rows' mean and deviation. With Task::kMultiLabel the label columns
// have 0, 1 or missing values, and the share is that of all rows. Which rows depends on
// options.seed alone. Both parts keep the order of the file. Throws MissingFileError, DataError
// (file, row and line) and ConfigError (no such label column, with the nearest).
DatasetSplits read_csv_splits(const DatasetOptions& options);

}  // namespace io
