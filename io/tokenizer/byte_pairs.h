// Byte-pair encoding (Gage, 1994; Sennrich et al., 2016) over bytes, as GPT-2 uses it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/base/text/text_hash.h"

namespace io {

class BytePairs {
 public:
  // `tokens`: the bytes of each token and its id. `merges`: pairs of tokens by rank, the first one
  // is merged first. With `whole_first`, a piece that is a token is not merged (`ignore_merges`).
  // Throws DataError with `source` for a merge whose parts or result are no tokens, and if a single
  // byte is none.
  BytePairs(const std::string& source, std::unordered_map<std::string, std::int32_t> tokens,
            std::span<const std::pair<std::string, std::string>> merges, bool whole_first);

  // Appends the ids of a piece. For several threads.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  void merge(std::vector<std::int32_t>& ids, std::size_t first) const;
  void merge_long(std::vector<std::int32_t>& ids, std::size_t first) const;

  std::unordered_map<std::string, std::int32_t, base::TextHash, std::equal_to<>> tokens_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::vector<std::int32_t> of_byte_;
  const bool whole_first_;
};

}  // namespace io
