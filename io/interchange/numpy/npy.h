// NumPy's .npy: one array, also as a member of an .npz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/interchange/numpy/npy_header.h"

namespace io {

// Reads bytes of a .npy from an offset on.
using ReadNpy = std::function<void(std::uint64_t offset, std::span<std::byte> target)>;

// Returns the header of a .npy of `size` bytes; fortran_order is false if both orders are the same.
// Throws DataError that starts with `what`: as parse_npy_header(), a truncated header, and data
// that do not match shape and type, unless the type is unsupported.
NpyHeader read_npy_header(const ReadNpy& read, std::uint64_t size, const std::string& what);

// Converts elements of `element` bytes from Fortran order (first index fastest) to C order (last
// index fastest).
std::vector<std::byte> to_c_order(const std::vector<std::byte>& fortran,
                                  const std::vector<std::int64_t>& shape, std::size_t element);

// Returns the file's array under this name. An array in Fortran order is converted in memory.
// Throws DataError as read_npy_header().
std::unique_ptr<ArraySource> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& array);

}  // namespace io
