// The header of NumPy's .npy format, versions 1.0, 2.0 and 3.0 (NumPy enhancement proposal 1, and
// numpy/lib/format).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace io {

struct NpyHeader {
  DType type = DType::kF32;
  std::string unread_type;  // an unsupported type by numpy's name ("|b1", "<U5"); `type` is then
                            // meaningless
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t header_bytes = 0;  // from the magic to the newline; the data follow
};

// The number of first bytes of a .npy that determine the length of its header.
constexpr std::size_t kNpyPrefix = 12;
// Returns the length of magic, version, length and text, from the first bytes (at most kNpyPrefix;
// fewer if the file is shorter). Throws DataError that starts with `what`: not a .npy, unknown
// version, a text of more than 64 KiB.
std::uint64_t npy_header_length(std::span<const std::byte> first, const std::string& what);
// Parses the whole header. The text must be the dictionary of descr, fortran_order and shape and
// nothing else; it is parsed by a grammar and never evaluated. Types other than little-endian f2 f4
// f8 i4 i8 and u1 are stored in `unread_type`; structured ones and objects (pickles) are rejected
// by name. Throws DataError that starts with `what`.
NpyHeader parse_npy_header(std::span<const std::byte> header, const std::string& what);

// Returns the header in numpy's format: version 1.0, data at a multiple of 64. Throws DataError for
// bf16, which NumPy does not support.
std::string write_npy_header(DType type, const std::vector<std::int64_t>& shape,
                             const std::string& what);

}  // namespace io
