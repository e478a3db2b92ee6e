// Parses and writes the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace io {

struct SafetensorsEntry {
  std::string name, dtype;  // "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // in bytes from the end of the header
};

// Returns the entries in the order of the text; "__metadata__" is checked and omitted. Throws
// DataError "`file`: ..." for anything that is not an object of {dtype, shape, data_offsets}
// objects: unknown or repeated keys, repeated names, numbers that overflow.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text,
                                                       const std::string& file);

// Returns the entries as text, with a "__metadata__" that states that names and layouts are
// PyTorch's.
std::string write_safetensors_header(const std::vector<SafetensorsEntry>& entries);

}  // namespace io
