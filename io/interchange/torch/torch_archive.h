// PyTorch's own files (.pth, .pt): the zip archives of a pickled state dict that torch.save has
// written since PyTorch 1.6.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// By the members of an archive. REQUIRES: is_zip(bytes). Throws DataError: a damaged archive.
bool is_torch_archive(const ByteSource& bytes);

// Reads directory and pickle, which runs nothing (pickle_values.h). The state dict is the file's
// value or what lies in it under "model", "state_dict" and the like; its order is kept. Views with
// strides are gathered in memory, one tensor at a time; all others are read where they lie. i16 and
// i8 become i32, bool becomes u8. Throws DataError: a damaged archive (zip_archive.h), what
// parse_pickle() and state_dict_of() refuse, big-endian numbers, compiled modules (torch.jit),
// tensors that reach beyond their storage, and such that need more than unpacked_limit() in all.
std::unique_ptr<ArraySource> open_torch_archive(std::unique_ptr<ByteSource> bytes);

// Writes a state dict in the order given, names and data alone, that torch.load(weights_only=True)
// reads; atomically as save_checkpoint does and with its errors. The same arrays give the same
// bytes. DataError, and nothing written: names that repeat or are no UTF-8, data that does not fit
// shape and type, more tensors than the reader takes.
void save_torch_archive(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
