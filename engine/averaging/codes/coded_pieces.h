// Divides sums of codes into pieces of limited size, so that the memory for the codes of all ranks
// is also limited. The pieces are the same on all ranks and kinds of devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/averaging/codes/lossy_code.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

inline constexpr std::int64_t kCodedPiece = std::int64_t{4} << 20;  // elements, whole blocks of
                                                                    // both codes
inline constexpr int kNoiseOfSums = -1;                             // no rank has this number

template <class Code>
std::int64_t coded_blocks(std::int64_t count) {
  return (count + Code::kBlock - 1) / Code::kBlock;
}

// Returns the blocks of each rank's share; 0 if whole codes are received in fewer bytes. A rank
// receives 2 (n - 1) codes of a share, or n - 1 whole ones. A sparse sum has more elements than a
// code can hold.
template <class Code>
std::int64_t coded_share(std::int64_t blocks, int ranks) {
  const std::int64_t share = (blocks + ranks - 1) / ranks;
  return Code::kHoldsSums && 2 * share < blocks ? share : 0;
}

// Returns the bytes that a rank sends to each other one in an exchange.
template <class Code>
std::size_t coded_bytes_to_each(const Code& code, std::int64_t count, int ranks) {
  const std::int64_t share = coded_share<Code>(coded_blocks<Code>(count), ranks);
  return share > 0 ? static_cast<std::size_t>(share) * code.block_bytes(Code::kBlock)
                   : code_bytes(code, count);
}

// Returns the largest memory that a piece of a sum of up to `most` elements needs for the codes of
// all ranks. Three or more ranks send up to 4 blocks as whole codes, which may be more bytes than
// the shares of more blocks.
template <class Code>
std::size_t coded_bytes_of_all(const Code& code, std::int64_t most, int ranks) {
  const std::int64_t largest = std::min(most, kCodedPiece);
  const std::size_t each =
      std::max(coded_bytes_to_each(code, largest, ranks),
               code_bytes(code, std::min<std::int64_t>(largest, 4 * Code::kBlock)));
  return each * static_cast<std::size_t>(ranks);
}

// A piece of one sum, in blocks.
struct CodedPiece {
  Elements range;
  std::int64_t block, blocks;  // elements of a block; number of blocks
  std::int64_t share;          // blocks of each rank's share; 0: whole codes
  std::size_t step, bytes;     // bytes of a block's code, and of the whole code

  std::int64_t position(std::int64_t number) const { return range.first + number * block; }
  // The place of a block among the codes of all blocks.
  std::size_t at(std::int64_t number) const { return static_cast<std::size_t>(number) * step; }
  // The blocks of a rank's share: its first one, and one past its last.
  std::int64_t first_of(int rank) const { return std::min(rank * share, blocks); }
  std::int64_t end_of(int rank) const { return std::min(first_of(rank) + share, blocks); }
};

// Calls call(piece) for the pieces of `range`, in order.
template <class Code, class Call>
void for_coded_pieces(const Code& code, Elements range, int ranks, const Call& call) {
  for (std::int64_t done = 0; done < range.count; done += kCodedPiece) {
    const std::int64_t count = std::min(kCodedPiece, range.count - done),
                       blocks = coded_blocks<Code>(count);
    call(CodedPiece{.range = {range.first + done, count},
                    .block = Code::kBlock,
                    .blocks = blocks,
                    .share = coded_share<Code>(blocks, ranks),
                    .step = code.block_bytes(Code::kBlock),
                    .bytes = code_bytes(code, count)});
  }
}

}  // namespace engine
