// Implements reading by pread and from memory.
#include "io/checkpoint/byte_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/base/files/open_file.h"
#include "io/base/files/system_error_text.h"

namespace io {
namespace {

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(const std::string& path) : ByteSource(path), file_(open_regular_file(path)) {}

  std::uint64_t size() const override { return file_.bytes; }

  void read(std::uint64_t offset, std::span<std::byte> target) const override {
    while (!target.empty()) {
      const ssize_t count =
          pread(file_.descriptor.fd(), target.data(), std::min<std::size_t>(target.size(), 1 << 30),
                static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Error("cannot read " + name() + ": " + base::system_error_text(errno));
      if (count == 0) throw DataError(name() + ": became shorter while it was read");
      target = target.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }

 private:
  const OpenedFile file_;
};

class MemoryBytes : public ByteSource {
 public:
  MemoryBytes(std::span<const std::byte> bytes, const std::string& name)
      : ByteSource(name), bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }

  void read(std::uint64_t offset, std::span<std::byte> target) const override {
    if (offset > bytes_.size() || target.size() > bytes_.size() - offset)
      throw DataError(name() + ": " + std::to_string(target.size()) + " bytes at " +
                      std::to_string(offset) + " end beyond its " + std::to_string(bytes_.size()));
    if (!target.empty()) std::memcpy(target.data(), bytes_.data() + offset, target.size());
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> ByteSource::bytes(std::uint64_t offset, std::uint64_t bytes) const {
  std::vector<std::byte> content;
  try {
    content.resize(bytes);
  } catch (const std::exception&) {  // bad_alloc or length_error
    throw DataError(name() + ": " + std::to_string(bytes) + " bytes do not fit into memory");
  }
  read(offset, content);
  return content;
}

std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  return file->bytes(0, file->size());
}

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  return std::make_unique<FileBytes>(path);
}

std::unique_ptr<ByteSource> memory_bytes(std::span<const std::byte> bytes,
                                         const std::string& name) {
  return std::make_unique<MemoryBytes>(bytes, name);
}

}  // namespace io
