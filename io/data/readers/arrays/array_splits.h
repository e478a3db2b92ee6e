// The data set "arrays": train.npz and test.npz, each with samples x and labels y.
#pragma once

#include <cstdint>
#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Reads train.npz and test.npz (or val.npz) of the folder; with Parts::kHoldOut train.npz may be
// missing. y has a class for each sample, [samples], or for each of its positions, [samples,
// height, width] or [samples, length]. The classes are those of the coding, or 0 to the highest
// label in train.npz. Throws MissingFileError and DataError with the file, the place and the value.
DatasetSplits read_array_splits(const DatasetOptions& options);

// Returns the bytes that reading them needs; 0 if reading will reject them.
std::uint64_t array_splits_bytes(const std::string& directory);

}  // namespace io
