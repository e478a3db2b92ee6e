// NumPy's .npz: a zip archive of .npy arrays, named like its members without ".npy".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// Reads directory and headers. Stored or deflated; Fortran order is converted in memory, one array
// at a time. Throws DataError: a damaged archive (zip_archive.h), members that are not arrays or
// have unknown types (npy_header.h), a member whose size does not match its shape, repeated names.
std::unique_ptr<ArraySource> open_npz(std::unique_ptr<ByteSource> bytes);

// Writes the arrays in the given order, stored, only names and data, atomically as save_checkpoint
// and with its errors. The same arrays give the same bytes. Throws DataError, without writing
// anything, for bf16, names that repeat or lead out of the archive, and data that do not match
// shape and type.
void save_npz(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
