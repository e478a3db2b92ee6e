// Writes token ids to a .npy file, which NumPy and the data set `tokens` read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/atomic_file.h"

namespace tools {

class TokenWriter {
 public:
  // `bits`: 16 or 32. The file has its name only after finish(). Throws CannotCreateError.
  TokenWriter(const std::string& path, int bits);

  // REQUIRES: the ids fit into the bits.
  void write(std::span<const std::int32_t> ids);
  std::uint64_t count() const { return count_; }
  void finish();

 private:
  io::AtomicFile file_;
  const int bits_;
  std::uint64_t count_ = 0;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace tools
