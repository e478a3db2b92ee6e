// Token ids out of a file that another program has made: llm.c's, nanoGPT's, or a .npy of NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace io {

struct TokenFile {
  std::string path;
  std::vector<std::int32_t> tokens;
};

constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 24) - 1;

// NAME.bin or NAME.npy of `directory`, plain or gzipped; `name` is "train" or "val". Two of these
// are an error. Ids are unsigned and little-endian:
//
// - llm.c's files by their header of 256 32-bit words: 20240520, version 1: 16 bits; 20240801,
//   version 7: 32 bits. The third word is the number of tokens. Other versions, the other byte
//   order, and llm.c's other files (evaluation, model, tokenizer) are refused by name.
// - .npy: one dimension of u1, u2, i2, u4, i4, u8 or i8.
// - All else has no header: ids of `bits` (16 or 32) bits. With 0 they are of 16 bits, unless the
//   file looks like wider ones: every second id is 0 or tiny. That is an error, which names
//   --token-bits.
//
// Throws MissingFileError and DataError: also where `bits` is not the width that the header says,
// and an id above kMaxTokenId, with its position.
TokenFile read_token_file(const std::string& directory, const std::string& name, int bits);

// Where read_token_file() would read from, and the bytes of an id there. Throws as it does.
struct TokenPlace {
  std::string path;
  std::size_t width;
};
TokenPlace find_token_file(const std::string& directory, const std::string& name, int bits);

}  // namespace io
