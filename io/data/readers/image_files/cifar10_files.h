// Reads CIFAR-10 in its binary version: records of a label byte and the red, green and blue planes
// of an image. Format and set: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny
// Images", 2009.
#pragma once

#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads all data_batch_*.bin (training) and test_batch*.bin (test) of `directory`, in numerical
// order, with any number of records each; planes become NHWC. Without mean and deviation. Throws
// MissingFileError and DataError (io_error.h) with the file, what was found and what was expected.
// `test_is_optional` is that of DatasetOptions.
DatasetSplits read_cifar10_splits(const std::string& directory, Parts parts = Parts::kSplit,
                                  bool test_is_optional = false);

bool is_cifar10_name(const std::string& name);  // data_batch_*.bin, test_batch*.bin

}  // namespace io
