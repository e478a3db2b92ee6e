// Keeps the newest bytes of one direction of a connection, so that they can be sent again.
//
// Bytes are first known by reference, and copied by copy_unacknowledged() when their memory may
// change. Those that the receiver is known to have are never copied: of a large sum, all but the
// last blocks. Short parts, such as headers, are copied at once.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace backends {

// Positions count the bytes of the stream from 0. One caller at a time. Allocates nothing after
// construction.
class ReplayBuffer {
 public:
  static constexpr std::size_t kHeldBytes = 32;  // parts of up to this size may change at once
  // `capacity`: the most bytes that are kept by copy; the memory is used as it fills.
  explicit ReplayBuffer(std::size_t capacity);

  // Appends bytes. REQUIRES: more than kHeldBytes do not change before copy_unacknowledged(),
  // unless the receiver has them.
  void add(const char* data, std::size_t bytes);
  // The receiver has all bytes before `position`, or before end() if that is less.
  void acknowledge(std::uint64_t position);
  // Copies what is left, at most the capacity.
  void copy_unacknowledged();

  std::uint64_t end() const { return end_; }
  // The first position from which all bytes are kept.
  std::uint64_t begin() const;
  // Sets `parts` to kept bytes from `position` on, at most `most`; returns the number of parts.
  // REQUIRES: begin() <= position <= end().
  std::size_t parts_from(std::uint64_t position, std::size_t most, std::span<iovec> parts) const;

 private:
  static constexpr std::uint32_t kMaxReferences = 64;  // a power of two
  struct Reference {
    const char* data;  // nullptr: in `held`
    std::size_t bytes;
    std::array<char, kHeldBytes> held;
    const char* begin() const { return data != nullptr ? data : held.data(); }
  };
  Reference& reference(std::uint32_t number) { return references_[number % kMaxReferences]; }
  const Reference& reference(std::uint32_t number) const {
    return references_[number % kMaxReferences];
  }
  void copy_first();

  // Returns the place of the byte at this position among the copies.
  std::size_t place_of(std::uint64_t position) const { return (position - origin_) % capacity_; }

  const std::size_t capacity_;
  const std::unique_ptr<char[]> copies_;
  std::array<Reference, kMaxReferences> references_;
  std::uint32_t first_ = 0, last_ = 0;  // bounds of the references; never reset
  std::uint64_t copied_ = 0;            // position of the first reference
  std::uint64_t origin_ = 0;            // position of the byte at the begin of the copies
  std::uint64_t acknowledged_ = 0, end_ = 0;
};

}  // namespace backends
