// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tools {

struct MemoryLimit {  // of a control group
  std::uint64_t bytes = 0;
  std::string file;  // that says so
};

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::optional<MemoryLimit> by = {};  // of which this is left; none: it is the host's
};
// What the kernel says is available, free swap included, or less where a control group (version 2,
// or 1) has a limit: what is left of it, counting files in memory as free. Nothing where the kernel
// does not tell. `root` stands for / in tests.
std::optional<AvailableMemory> available_memory(const std::string& root = "");

// The smallest of the process's control groups that is below `most`.
std::optional<MemoryLimit> memory_limit(std::uint64_t most, const std::string& root = "");

// Tells whether the kernel has killed processes of this control group for want of memory since the
// object was made.
class MemoryKills {
 public:
  explicit MemoryKills(std::string root = "");
  // "; the kernel has killed for want of memory, of which FILE allows 60 MiB"; "" where
  // it has not.
  std::string text() const;

 private:
  const std::string root_;
  const std::uint64_t before_;
};

std::string gib_text(std::uint64_t bytes);     // "12.3 GiB"; "0.04 GiB" below a tenth
std::string memory_text(std::uint64_t bytes);  // "12.3 GiB"; "40 MiB" below one

}  // namespace tools
