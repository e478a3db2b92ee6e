// Determines how much memory this process may still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tools {

struct MemoryLimit {  // limit of a control group
  std::uint64_t bytes = 0;
  std::string file;  // file that contains it
};

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::optional<MemoryLimit> by = {};  // the limit that determines it; none: the host's memory does
};
// Returns the available memory according to the kernel, free swap included, or less if a control
// group (version 2 or 1) has a limit: the rest of that limit, with cached files counted as free.
// Returns nullopt if the kernel does not report it. `root` replaces / in tests.
std::optional<AvailableMemory> available_memory(const std::string& root = "");

// Returns the smallest limit of the process's control groups that is below `most`.
std::optional<MemoryLimit> memory_limit(std::uint64_t most, const std::string& root = "");

// Detects if the kernel's OOM killer has ended processes of this control group since the object was
// made.
class MemoryKills {
 public:
  explicit MemoryKills(std::string root = "");
  // Returns "; the kernel's OOM killer ended a process: FILE allows 60 MiB"; "" if it has not.
  std::string text() const;

 private:
  const std::string root_;
  const std::uint64_t before_;
};

}  // namespace tools
