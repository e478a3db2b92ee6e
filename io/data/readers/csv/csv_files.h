// Reads a CSV file as a data set: selects the label column and the test rows.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads options.annotations, or otherwise the only *.csv (or *.csv.gz) in options.directory;
// csv_table.h and csv_columns.h describe the format.
//
// The first row is a header if options.csv_header says so, if csv_header.h detects one, or if
// options.label_column is one of its fields and not a number. An index in a first column without a
// name is left out. `warnings` of the result describe decisions that the user should know about.
// The label is the column with the name options.label_column (or the number, from 1), by default
// the last. options.columns or options.ignored_columns select among the others, by name or number.
//
// options.test_share of each class's rows, rounded, are for testing, but never the last row of a
// class: a test label has always been seen in training. With options.regression the label column is
// a target: every field must be a number, the fraction is that of all rows, and numbers are
// standardized by the training rows' mean and deviation. The choice of rows depends only on
// options.seed. Both parts keep the order of the file. Throws MissingFileError, DataError (file,
// row and line) and ConfigError (no such label column, with the nearest).
DatasetSplits read_csv_splits(const DatasetOptions& options);

}  // namespace io
