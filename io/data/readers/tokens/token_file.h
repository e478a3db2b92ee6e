// Reads token ids from a file of another program: llm.c, nanoGPT, or a .npy of NumPy.
#pragma once

#include <cstddef>
#include <string>

#include "io/data/samples/token_stream.h"

namespace io {

struct TokenFile {
  std::string path;
  TokenStream tokens;
};

// Opens NAME.bin or NAME.npy in `directory`, which stays in its file, or reads it into memory if it
// is gzipped; `name` is "train" or "val". It is an error if two of these exist. Ids are unsigned
// and little-endian:
//
// - llm.c's files are recognized by their header of 256 32-bit words: 20240520, version 1: 16 bits;
//   20240801, version 7: 32 bits. The third word is the number of tokens. Other versions, the other
//   byte order, and llm.c's other files (evaluation, model, tokenizer) are rejected by name.
// - .npy: one dimension of u1, u2, i2, u4, i4, u8 or i8.
// - All other files have no header: ids of `bits` (16 or 32) bits. With 0 they have 16 bits; if the
//   file looks like wider ones, because every second id is 0 or small, that is an error, which
//   names --token-bits.
//
// Throws MissingFileError and DataError: also if `bits` is not the width in the header, and, in a
// gzipped file, for an id above kMaxTokenId, with its position.
TokenFile read_token_file(const std::string& directory, const std::string& name, int bits);

// The file that read_token_file() would read, and the bytes per id in it if it is gzipped, or else
// 0: it takes no memory. Throws the same exceptions.
struct TokenPlace {
  std::string path;
  std::size_t packed_width;
};
TokenPlace find_token_file(const std::string& directory, const std::string& name, int bits);

}  // namespace io
