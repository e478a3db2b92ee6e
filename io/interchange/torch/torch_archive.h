// Reads and writes PyTorch's own files (.pth, .pt): the zip archives of a pickled state dict that
// torch.save writes since PyTorch 1.6.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// Checks the members of an archive. REQUIRES: is_zip(bytes). Throws DataError: a damaged archive.
bool is_torch_archive(const ByteSource& bytes);

// Reads directory and pickle, without executing anything (pickle_values.h). The state dict is the
// file's value or its value under "model", "state_dict" and similar keys; its order is kept. Views
// with strides are gathered in memory, one tensor at a time; all others are read in place. i16 and
// i8 become i32, bool becomes u8. Throws DataError: a damaged archive (zip_archive.h), values that
// parse_pickle() and state_dict_of() reject, big-endian numbers, compiled modules (torch.jit),
// tensors that extend beyond their storage, and tensors that need more than unpacked_limit() in
// total.
std::unique_ptr<ArraySource> open_torch_archive(std::unique_ptr<ByteSource> bytes);

// Writes a state dict in the given order, only names and data, that torch.load(weights_only=True)
// reads; atomically as save_checkpoint and with its errors. The same arrays give the same bytes.
// Throws DataError, without writing anything, for names that repeat or are not UTF-8, data that do
// not match shape and type, and more tensors than the reader accepts.
void save_torch_archive(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
