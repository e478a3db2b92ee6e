// Computes the memory that loading a data set needs, before any of it is allocated.
#pragma once

#include <cstdint>

#include "io/data/dataset/dataset_options.h"

namespace io {

// Returns the peak in bytes for data of files that are held whole: the samples, and in addition the
// largest file as it is read or unpacked; for CSV only the text, for text and tokens also the ids.
// Returns 0 if that is not known, or if a file is missing or cannot be read: loading reports it.
std::uint64_t loading_bytes(const DatasetOptions& options);

}  // namespace io
