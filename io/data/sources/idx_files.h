// MNIST and the sets that share its files: images and labels in IDX format.
// Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits" (description
// of the file formats).
#pragma once

#include <string>

#include "io/data/sources/dataset.h"

namespace io {

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from `directory`; names with `.` in place of
// `-` before `idx` and with .gz behind are taken too. Images must be 28 x 28, labels 0..9. Without
// mean and deviation. Throws MissingFileError and DataError (io_error.h), naming the file, what was
// found and what was expected.
DatasetSplits read_idx_splits(const std::string& name, const std::string& directory);

}  // namespace io
