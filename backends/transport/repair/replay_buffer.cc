// Implements references and copies of sent bytes.
#include "backends/transport/repair/replay_buffer.h"

#include <algorithm>
#include <cstring>

namespace backends {

ReplayBuffer::ReplayBuffer(std::size_t capacity)
    : capacity_(capacity), copies_(std::make_unique_for_overwrite<char[]>(capacity)) {}

void ReplayBuffer::add(const char* data, std::size_t bytes) {
  if (bytes == 0) return;
  end_ += bytes;
  if (first_ != last_) {
    Reference& newest = reference(last_ - 1);
    if (newest.data != nullptr && newest.data + newest.bytes == data) {
      newest.bytes += bytes;
      return;
    }
  }
  if (last_ - first_ == kMaxReferences) copy_first();
  Reference& added = reference(last_++);
  added.data = bytes > kHeldBytes ? data : nullptr;
  added.bytes = bytes;
  if (added.data == nullptr) std::memcpy(added.held.data(), data, bytes);
}

void ReplayBuffer::acknowledge(std::uint64_t position) {
  acknowledged_ = std::max(acknowledged_, std::min(position, end_));
  while (first_ != last_ && copied_ + reference(first_).bytes <= acknowledged_)
    copied_ += reference(first_++).bytes;
}

void ReplayBuffer::copy_unacknowledged() {
  while (first_ != last_) copy_first();
}

void ReplayBuffer::copy_first() {
  const Reference& from = reference(first_++);
  const std::uint64_t last = copied_ + from.bytes;
  const std::uint64_t oldest =
      std::max(acknowledged_, last - std::min<std::uint64_t>(last, capacity_));
  std::uint64_t at = std::max(copied_, oldest);
  // Without older copies, starts over with the first bytes of the memory: they were used last and
  // are in the cache, which is smaller than the whole.
  if (acknowledged_ >= copied_) origin_ = at;
  while (at < last) {
    const std::size_t place = place_of(at);
    const std::size_t bytes = std::min<std::size_t>(last - at, capacity_ - place);
    std::memcpy(copies_.get() + place, from.begin() + (at - copied_), bytes);
    at += bytes;
  }
  copied_ = last;
}

std::uint64_t ReplayBuffer::begin() const {
  return std::max(acknowledged_, copied_ - std::min<std::uint64_t>(copied_, capacity_));
}

std::size_t ReplayBuffer::parts_from(std::uint64_t position, std::size_t most,
                                     std::span<iovec> parts) const {
  std::size_t used = 0;
  const auto take = [&](const char* data, std::size_t bytes) {
    const std::size_t taken = std::min(bytes, most);
    parts[used++] = {const_cast<char*>(data), taken};  // it is only read
    position += taken;
    most -= taken;
  };
  while (position < copied_ && used < parts.size() && most > 0) {
    const std::size_t place = place_of(position);
    take(copies_.get() + place, std::min<std::size_t>(copied_ - position, capacity_ - place));
  }
  std::uint64_t begin = copied_;
  for (std::uint32_t i = first_; i != last_ && used < parts.size() && most > 0; ++i) {
    const Reference& from = reference(i);
    const std::uint64_t end = begin + from.bytes;
    if (position < end) take(from.begin() + (position - begin), end - position);
    begin = end;
  }
  return used;
}

}  // namespace backends
