// A stream of token ids: held in memory, or left in its file and read on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/base/digests/digest.h"
#include "io/base/files/open_file.h"

namespace io {

constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 24) - 1;

inline constexpr std::int64_t kCheckedBytes = std::int64_t{1} << 28;

// Ids as little-endian numbers, one after the other.
struct TokenLayout {
  std::size_t first = 0;  // offset of the first id in the file
  std::size_t width = 2;  // bytes per id: 1, 2, 4 or 8
  bool is_signed = false;
};

// Reads ids from bytes that begin with the id at `position` of the file at `path`, for messages.
// REQUIRES: `bytes` has out.size() ids. Throws DataError with the position for an id below 0 or
// above kMaxTokenId.
void decode_tokens(const std::string& path, const TokenLayout& layout, std::int64_t position,
                   std::span<const std::uint8_t> bytes, std::span<std::int32_t> out);

// Copies share what they hold. For several threads, if none changes it.
class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(std::vector<std::int32_t> tokens);  // NOLINT: held in memory
  // Stays in the file, which is kept open.
  TokenStream(std::string path, OpenedFile file, const TokenLayout& layout, std::int64_t count);

  std::int64_t size() const { return count_; }
  // Memory that holds ids.
  std::uint64_t bytes() const { return held_ ? static_cast<std::uint64_t>(count_) * 4 : 0; }
  // Shortens the stream.
  void keep_first(std::int64_t count);

  // Copies the ids from `begin` on to `out`. Throws DataError for a file that has become shorter,
  // and for an id at or above the limit, with its position.
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;
  // Copies the whole stream.
  std::vector<std::int32_t> all() const;
  // Reads the whole stream once; the highest id, -1 without ids.
  std::int32_t highest() const;
  // From now on copy() throws for ids that are not below `limit`, the size of a vocabulary.
  void set_limit(std::int64_t limit) { limit_ = limit; }
  // Reads the whole stream, unless it is large, so that a wrong id is an error at once.
  void check() const;

  // True if reading the whole stream would delay the start: it is in a file and has more than
  // kCheckedBytes there.
  bool is_large() const;
  // Adds all ids as 32-bit numbers; for a large stream the number of ids, and 64 parts at equal
  // distances.
  void add_to(base::StreamDigest& digest) const;

 private:
  struct Stored {
    std::string path;
    base::Descriptor file;
    TokenLayout layout;
  };
  template <class Use>
  void for_each_part(Use use) const;
  void expect_below_limit(std::int64_t begin, std::span<const std::int32_t> ids) const;

  std::int64_t count_ = 0;
  std::int64_t limit_ = kMaxTokenId + 1;
  std::shared_ptr<const std::vector<std::int32_t>> held_;
  std::shared_ptr<const Stored> stored_;
};

}  // namespace io
