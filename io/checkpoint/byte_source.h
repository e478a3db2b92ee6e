// Random-access reading of bytes, from a regular file or from memory.
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

  const std::string& name() const { return name_; }  // stands for the bytes in messages
  virtual std::uint64_t size() const = 0;
  // Fills `target` from `offset` on. Throws DataError beyond the end (a file can become shorter),
  // Error when the medium fails. Any thread, and several at the same time where many_readers() says
  // so.
  virtual void read(std::uint64_t offset, std::span<std::byte> target) const = 0;

  virtual bool many_readers() const { return true; }

  // So many bytes from `offset` on. REQUIRES: the caller has held `bytes` against size(), so that
  // no claim in a file allocates.
  std::vector<std::byte> bytes(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::string name_;
};

// A regular file; nothing of it is read yet. Does not wait for the other side of a pipe. Throws
// MissingFileError, and DataError for what is not a regular file.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);
// `bytes` must outlive the source.
std::unique_ptr<ByteSource> memory_bytes(std::span<const std::byte> bytes, const std::string& name);

}  // namespace io
