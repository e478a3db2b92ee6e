// MNIST and the sets that share its files: images and labels in IDX format.
// Format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits" (description
// of the file formats).
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte from `directory`; names with `.` in place of
// `-` before `idx` and with .gz behind are taken too, and such a file in a folder of its own name,
// as an archive of Kaggle has it. Where a file is there several times, the contents must be equal.
// Images must be 28 x 28, labels 0..9. Without mean and deviation. Throws MissingFileError and
// DataError (io_error.h), naming the file, what was found and what was expected.
DatasetSplits read_idx_splits(const std::string& name, const std::string& directory,
                              Parts parts = Parts::kSplit);

// The two files of images that it would read. Throws as it does.
std::vector<std::string> find_idx_images(const std::string& name, const std::string& directory);

}  // namespace io
