// The data set "arrays": samples x and labels y of train.npz and test.npz, or of .npy files.
#pragma once

#include <cstdint>
#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads train.npz and test.npz (or val.npz) of the folder, or train_x.npy, train_y.npy, test_x.npy
// and test_y.npy; with Parts::kHoldOut those of training may be missing. y has a class for each
// sample, [samples], or for each of its positions, [samples, height, width] or [samples, length];
// with Task::kMultiLabel it has labels of 0 or 1, [samples, labels].
// The classes are those of the coding, or 0 to the highest label for training. Throws
// MissingFileError and DataError with the file, the place and the value.
DatasetSplits read_array_splits(const DatasetOptions& options);

// Returns the bytes that reading them needs; 0 if reading will reject them.
std::uint64_t array_splits_bytes(const std::string& directory);

}  // namespace io
