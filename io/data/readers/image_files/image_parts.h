// Finds the parts of a folder of images: train, and val or test.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Returns true if the folder has train, val or test.
bool is_divided(const std::string& directory);

// Returns directory/train. Throws MissingFileError if there is none.
std::string training_folder(const std::string& directory);

// Returns the folder of the test samples: options.test_part if it exists, else val, else test. If
// both exist and options.test_part is "", adds a warning and sets splits.test_part. If there is
// none, returns "" with options.test_is_optional beside a training folder, else throws
// MissingFileError.
std::string testing_folder(const DatasetOptions& options, DatasetSplits& splits);

}  // namespace io
