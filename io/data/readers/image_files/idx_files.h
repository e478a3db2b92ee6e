// Reads MNIST and the sets in the same file format: images and labels in IDX format.
// Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits" (description
// of the file formats).
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from `directory`; also accepts names with `.`
// in place of `-` before `idx`, with the suffix .gz, and such a file in a folder with its own name,
// as in Kaggle's archive. If a file exists several times, the contents must be equal. Images must
// be 28 x 28, labels 0..9. Without mean and deviation. Throws MissingFileError and DataError
// (io_error.h) with the file, what was found and what was expected. `test_is_optional` is that of
// DatasetOptions.
DatasetSplits read_idx_splits(const std::string& name, const std::string& directory,
                              Parts parts = Parts::kSplit, bool test_is_optional = false);

// Returns the two image files that it would read. Throws the same exceptions.
std::vector<std::string> find_idx_images(const std::string& name, const std::string& directory);

}  // namespace io
