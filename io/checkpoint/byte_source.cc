// pread, and a view of memory.
#include "io/checkpoint/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace io {
namespace {

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(const std::string& path)
      : ByteSource(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw MissingFileError("cannot open " + path + ": " + std::strerror(errno));
    struct stat status {};
    if (fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    close(fd_);
    throw DataError(path + (S_ISDIR(status.st_mode) ? ": is a folder; expected a file"
                                                    : ": is not a regular file"));
  }
  ~FileBytes() override { close(fd_); }

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, std::span<std::byte> target) const override {
    while (!target.empty()) {
      const ssize_t count = pread(fd_, target.data(), std::min<std::size_t>(target.size(), 1 << 30),
                                  static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Error("cannot read " + name() + ": " + std::strerror(errno));
      if (count == 0) throw DataError(name() + ": became shorter while it was read");
      target = target.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }

 private:
  int fd_;
  std::uint64_t size_ = 0;
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

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  return std::make_unique<FileBytes>(path);
}

std::unique_ptr<ByteSource> memory_bytes(std::span<const std::byte> bytes,
                                         const std::string& name) {
  return std::make_unique<MemoryBytes>(bytes, name);
}

}  // namespace io
