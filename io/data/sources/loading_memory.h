// What loading a data set takes of memory, told before any of it is taken.
#pragma once

#include <cstdint>

#include "io/data/dataset/dataset_options.h"

namespace io {

// Bytes at the peak, for data of files that are held whole: the samples, and beside them the
// largest file as it is read or unpacked; of CSV the text alone, of text and tokens also the ids
// made of them. 0 where that is not known, or a file is missing or cannot be read: loading says so.
std::uint64_t loading_bytes(const DatasetOptions& options);

}  // namespace io
