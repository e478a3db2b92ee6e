// Images with several labels of 0 or 1 each, from a table beside them.
#pragma once

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads the images of the folders that image_parts.h chooses that the table labels.csv of each
// folder names, in its order: the first column has paths from the folder on, each other one a
// label of 1, 0, or an empty field if it is unknown; row 1 has the names of the labels. Both tables
// have the same labels. With options.parts kHoldOut the images for testing suffice, also in
// options.directory itself. A warning counts images that the table does not name. Throws
// MissingFileError (no such folder, no table), DataError (an invalid table, an image that is
// missing or named twice, other labels than in training or in the model), ConfigError as
// image_folder.h.
DatasetSplits read_labelled_splits(const DatasetOptions& options);

}  // namespace io
