// NumPy's .npz: a zip archive of .npy arrays, named after its members without their ".npy".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// Reads directory and headers. Stored or deflated; Fortran order is turned round in memory, one
// array at a time. Throws DataError: a damaged archive (zip_archive.h), members that are no arrays
// or of unknown types (npy_header.h), a member whose size is not that of its shape, repeated names.
std::unique_ptr<ArraySource> open_npz(std::unique_ptr<ByteSource> bytes);

// Writes the arrays in the order given, stored, names and data alone, atomically as save_checkpoint
// does and with its errors. The same arrays give the same bytes. DataError, and nothing written:
// bf16, names that repeat or lead out of the archive, data that does not fit shape and type.
void save_npz(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
