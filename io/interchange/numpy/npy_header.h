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
  std::string unread_type;  // another type, as numpy calls it ("|b1", "<U5"); `type` says nothing
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t header_bytes = 0;  // magic to newline; the data follows
};

// The first bytes of a .npy that tell how long its header is.
constexpr std::size_t kNpyPrefix = 12;
// Length of magic, version, length and text, from the first bytes (as many as there are, up to
// kNpyPrefix). Throws DataError that begins with `what`: no .npy, unknown version, a text of more
// than 64 KiB.
std::uint64_t npy_header_length(std::span<const std::byte> first, const std::string& what);
// The whole header. The text must be the dictionary of descr, fortran_order and shape and nothing
// else; it is read by a grammar of its own and never evaluated. Types other than little-endian f2
// f4 f8 i4 i8 and u1 go to `unread_type`; structured ones and objects (pickles) are refused by
// name. Throws DataError that begins with `what`.
NpyHeader parse_npy_header(std::span<const std::byte> header, const std::string& what);

// As numpy writes it: version 1.0, data at a multiple of 64. Throws DataError for bf16, which NumPy
// does not know.
std::string write_npy_header(DType type, const std::vector<std::int64_t>& shape,
                             const std::string& what);

}  // namespace io
