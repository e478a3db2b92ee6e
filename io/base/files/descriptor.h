// An owned file descriptor: of a file, a folder, a socket or an event.
#pragma once

#include <unistd.h>

#include <utility>

namespace base {

// Closes its descriptor. Moves, does not copy.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(release());
  }
  int release() { return std::exchange(fd_, -1); }  // to another owner

 private:
  int fd_ = -1;
};

}  // namespace base
