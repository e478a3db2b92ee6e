// The safetensors file format (huggingface/safetensors): 8-byte little-endian header length, JSON
// header, raw tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// Opens the tensors, in section kParameter and file-offset order. Rejects with DataError: header
// over 100 MB, duplicate names, overlap, gaps, a size that is not shape * dtype, overflow, unknown
// dtype, trailing bytes. F16 and BF16 are not converted. The file's "__metadata__" is checked and
// dropped.
std::unique_ptr<ArraySource> open_safetensors(std::unique_ptr<ByteSource> bytes);

// Writes the arrays in the given order, only names and data, atomically as save_checkpoint and with
// its errors. REQUIRES: names are unique (regardless of sections), data match shape and type;
// otherwise throws DataError without writing anything.
void save_safetensors(const std::vector<NamedArray>& arrays, const std::string& path);

}  // namespace io
