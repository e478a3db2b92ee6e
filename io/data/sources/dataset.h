// The registry of data sets: loads one by its name.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"
#include "io/data/sources/data_digest.h"

namespace io {

// Throws DataError (names the file, what was found and what was expected), MissingFileError (says
// which files were looked for and how to get them) and ConfigError (unknown name, with the
// nearest).
DatasetSplits load_dataset(const DatasetOptions& options);

std::vector<std::string> dataset_names();  // what options.name may be

}  // namespace io
