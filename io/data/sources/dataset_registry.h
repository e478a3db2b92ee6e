// The registry of data sets, which loads one by its name.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"
#include "io/data/sources/data_digest.h"

namespace io {

// Throws DataError (with the file, what was found and what was expected), MissingFileError (with
// the files that were searched and how to get them) and ConfigError (unknown name, with the
// nearest).
DatasetSplits load_dataset(const DatasetOptions& options);

std::vector<std::string> dataset_names();  // the valid values of options.name

}  // namespace io
