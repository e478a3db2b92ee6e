// The safetensors file format (huggingface/safetensors): 8-byte little-endian header length, JSON
// header, raw tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// The tensors in file-offset order, to be read piece by piece; refuses what load_safetensors
// refuses.
std::unique_ptr<ArraySource> open_safetensors(std::unique_ptr<ByteSource> bytes);

// Reads all tensors as NamedArrays of section kParameter (names in file-offset order). Refuses,
// with DataError: header over 100 MB, duplicate names, overlap, holes, size that is not shape *
// dtype, overflow, unknown dtype, trailing bytes. F16 and BF16 stay as they are. The file's
// "__metadata__" is checked and dropped.
std::vector<NamedArray> load_safetensors(const std::string& path);
std::vector<NamedArray> parse_safetensors(const std::vector<std::byte>& bytes,
                                          const std::string& name);

// Writes the arrays in the order given, names and data alone, atomically as save_checkpoint does
// and with its errors. REQUIRES: names are unique (sections do not count), data fits shape and
// type; else DataError, and nothing is written.
void save_safetensors(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
