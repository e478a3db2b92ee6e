// Keeps the contents of buffers during a step that may be undone.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "engine/core/parameter_buffer.h"

namespace engine {

// Refers to the buffers, which must outlive it and keep their sizes.
class BufferBackup {
 public:
  // Discards all contents; their memory is used again, so that later steps allocate nothing.
  void clear() {
    buffers_.clear();
    contents_.clear();
  }
  // Copies a buffer in host memory. REQUIRES: none of it was kept since clear().
  void keep(FlatBuffer& buffer) {
    const auto* from = static_cast<const std::byte*>(buffer.data());
    buffers_.push_back(&buffer);
    contents_.insert(contents_.end(), from, from + buffer.bytes());
  }
  // Writes the contents back to their buffers.
  void put_back() const {
    const std::byte* from = contents_.data();
    for (FlatBuffer* buffer : buffers_) {
      if (buffer->bytes() > 0) std::memcpy(buffer->data(), from, buffer->bytes());
      from += buffer->bytes();
    }
  }

 private:
  std::vector<FlatBuffer*> buffers_;
  std::vector<std::byte> contents_;  // all buffers, one after the other
};

}  // namespace engine
