// The container format of a checkpoint: sizes, and the header's text. For the files of this folder;
// the grammar is in docs/checkpoint-format.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"

namespace io::format {

// magic(8) version(4) header_length(8) header_crc(4) | header | zeros to 64 | tensors | digest(16)
// magic(8)
//
// Version 4, which is written, digests each array by blocks, so that threads can check it in any
// order; the trailer then has the digest of everything before the tensors. Versions 1 to 3 digest
// each array and the file as a whole.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'E', 'N', 'G', 'C', 'K', '\r', '\n'};
// 2: a text model's vocabulary follows the arrays. 3: then facts about the run, each a name and a
// text. 4: then the size of each array's digest blocks.
constexpr std::uint32_t kFirstVersion = 1, kTextVersion = 2, kRunVersion = 3, kBlockVersion = 4;
constexpr std::size_t kPreambleBytes = 8 + 4 + 8 + 4;
constexpr std::size_t kTrailerBytes = 16 + 8;
constexpr std::size_t kAlignment = 64;                 // alignment of the first tensor
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the cap of safetensors
constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kHighestRank = 8;
constexpr std::size_t kLargestVocabulary = 256;     // one token per byte
constexpr std::uint64_t kMinDigestBlock = 1 << 16;  // unless the array is smaller

using base::Digest;
using base::digest_of;
using base::StreamDigest;

struct Placement {  // position of one array's bytes; offsets count from the first tensor
  std::uint64_t offset = 0, bytes = 0;
  Digest digest;  // version 4: of the digests of its blocks, in order; before: of its bytes
  std::uint64_t block_bytes = 1;  // whole rows; the last block is shorter
};

// The code of an element type in a header.
std::uint8_t type_code(DType type);
DType type_of_code(std::uint8_t code, const std::string& file);  // throws DataError: unknown

// Returns the bytes of shape * type. Throws DataError with `what` if a dimension is negative, there
// are more than 8, or the product overflows.
std::uint64_t array_bytes(const std::vector<std::int64_t>& shape, DType type,
                          const std::string& what);

// Returns the size of the blocks for an array's digest: whole rows (slices of the first dimension),
// 0.5 to 2 MiB unless a single row is larger, so that a block stays in a core's cache.
std::uint64_t digest_block_bytes(const std::vector<std::int64_t>& shape, std::uint64_t bytes);

// Checks names (unique in their section, UTF-8, length), shapes against placements, contiguous
// placements, digest blocks, and plausible progress. Throws DataError that starts with `file`.
void check_header(const Checkpoint& checkpoint, const std::vector<Placement>& placements,
                  const std::string& file);

// Encodes everything in a checkpoint except the arrays' data. REQUIRES: one placement per array.
std::vector<std::byte> encode_header(const Checkpoint& checkpoint,
                                     const std::vector<Placement>& placements);
// Decodes a buffer that ends where the header ends. Each claimed size is first compared with the
// remaining bytes: memory stays within a small multiple of the buffer. Throws DataError that starts
// with `file`. Calls check_header.
void decode_header(std::span<const std::byte> bytes, std::uint32_t version, const std::string& file,
                   Checkpoint& checkpoint, std::vector<Placement>& placements);

// Returns preamble, header and padding: everything before the tensors. REQUIRES: as encode_header.
// Throws Error if it is too long.
std::vector<std::byte> encode_head(const Checkpoint& checkpoint,
                                   const std::vector<Placement>& placements);
// `digest` is that of the head.
std::vector<std::byte> encode_trailer(const Digest& digest);

// Everything before the tensors, after checks; `checkpoint` has everything except the arrays' data.
// Throws DataError.
struct Head {
  Checkpoint checkpoint;
  std::vector<Placement> placements;
  std::uint64_t tensors_begin = 0;  // in the file
  std::uint32_t version = kBlockVersion;
  Digest digest;  // digest of everything before the tensors
};
Head read_head(const ByteSource& file);

// The readers' common error messages. Throw DataError.
void check_length(std::uint64_t claimed, std::uint64_t found,
                  const std::string& file);  // total of all tensors
void check_trailer(std::span<const std::byte> trailer, const Digest& digest,
                   const std::string& file);
[[noreturn]] void fail_array(Section section, const std::string& name, const std::string& file);

}  // namespace io::format
