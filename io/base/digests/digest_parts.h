// The XXH3-128 digest of a long text whose parts are looked at in any order, by several threads
// (ADR 40).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/base/digests/digest.h"

namespace base {

// XXH3 adds up stripes to blocks, and mixes after each block that is not the last.
constexpr std::size_t kDigestStripe = 64, kDigestBlock = 1024;
using DigestLanes = std::array<std::uint64_t, kDigestStripe / sizeof(std::uint64_t)>;

// The end of what there is of a text: its last block, and the stripe before that.
struct DigestTail {
  std::array<std::byte, kDigestStripe + kDigestBlock> bytes{};
  std::size_t pending = 0;  // of the block: all of it only until something follows

  std::span<const std::byte> block() const {
    return std::span(bytes).subspan(kDigestStripe, pending);
  }
};

// What the digest needs of some consecutive bytes of a text: a sixteenth of them. One thread at a
// time.
class DigestPart {
 public:
  explicit DigestPart(std::uint64_t begin) : begin_(begin), end_(begin) {}  // its place in the text
  void add(std::span<const std::byte> bytes);

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }

 private:
  friend class PartedDigest;

  std::uint64_t begin_, end_;
  std::vector<std::byte> head_;    // up to where a block begins
  std::vector<DigestLanes> sums_;  // of the blocks that something follows
  DigestTail tail_;
};

// One thread at a time.
class PartedDigest {
 public:
  PartedDigest();
  void add(const DigestPart& part);  // REQUIRES: it begins where the text ends so far
  std::uint64_t size() const { return size_; }
  Digest value() const;  // of what was added so far: base::digest_of() of it

 private:
  void add_bytes(std::span<const std::byte> bytes);
  void mix_in(const std::byte* blocks, std::size_t count);

  std::uint64_t size_ = 0;
  DigestLanes lanes_;
  DigestTail tail_;
};

}  // namespace base
