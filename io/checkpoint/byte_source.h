// Reads bytes at random offsets from a regular file or from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"

namespace io {

class ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }  // names the bytes in messages
  virtual std::uint64_t size() const = 0;
  // Fills `target` from `offset` on. Throws DataError beyond the end (a file can become shorter),
  // Error if the medium fails. Any thread may call it, and several concurrently if many_readers()
  // is true.
  virtual void read(std::uint64_t offset, std::span<std::byte> target) const = 0;

  virtual bool many_readers() const { return true; }

  // Returns `bytes` bytes from `offset` on. REQUIRES: the caller has compared `bytes` with size(),
  // so that no size claimed in a file causes an allocation.
  std::vector<std::byte> bytes(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::string name_;
};

// Opens a regular file without reading it. Does not wait for the other end of a pipe. Throws
// MissingFileError, and DataError for anything other than a regular file.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);
std::vector<std::byte> read_file(const std::string& path);  // its whole content; throws the same
// `bytes` must outlive the source.
std::unique_ptr<ByteSource> memory_bytes(std::span<const std::byte> bytes, const std::string& name);

}  // namespace io
