// Reads /proc/meminfo and the control groups' files.
#include "tools/launch/machine/memory_info.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "io/base/machine/control_groups.h"
#include "io/base/text/memory_text.h"

namespace tools {
namespace {

using Bytes = std::optional<std::uint64_t>;

// Returns the number after "NAME" or "NAME:" at the start of a line.
Bytes entry_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && (word == name || word == name + ":")) return value;
  }
  return std::nullopt;
}

// Reads a file of one number; nothing if it has other content ("max") or is missing.
Bytes number_in(const std::string& path) {
  std::uint64_t value = 0;
  return std::ifstream(path) >> value ? Bytes(value) : std::nullopt;
}

Bytes left_in_host(const std::string& root) {
  const Bytes available = entry_of(root + "/proc/meminfo", "MemAvailable");
  if (!available) return std::nullopt;
  return (*available + entry_of(root + "/proc/meminfo", "SwapFree").value_or(0)) * 1024;
}

struct GroupFiles {
  const char *limit, *used, *kills, *files_prefix;
};
constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", "/memory.events", ""};
constexpr GroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "/memory.oom_control", "total_"};

const GroupFiles& files_of(base::GroupVersion version) {
  return version == base::GroupVersion::k2 ? kVersion2 : kVersion1;
}

std::optional<AvailableMemory> left_in_group(const std::string& folder, const GroupFiles& names) {
  const Bytes limit = number_in(folder + names.limit), used = number_in(folder + names.used);
  if (!limit || !used) return std::nullopt;
  std::uint64_t files = 0;
  for (const char* list : {"inactive_file", "active_file"})
    files += entry_of(folder + "/memory.stat", std::string(names.files_prefix) + list).value_or(0);
  const std::uint64_t taken = *used - std::min(files, *used);
  return AvailableMemory{*limit - std::min(taken, *limit),
                         MemoryLimit{*limit, folder + names.limit}};
}

// Counts only the group itself: the groups above it include other processes.
std::uint64_t kills_in_group(const std::string& root) {
  Bytes kills;
  base::visit_groups(root, "memory", [&](const std::string& folder, base::GroupVersion version) {
    if (!kills) kills = entry_of(folder + files_of(version).kills, "oom_kill");
  });
  return kills.value_or(0);
}

}  // namespace

std::optional<AvailableMemory> available_memory(const std::string& root) {
  std::optional<AvailableMemory> least;
  if (const Bytes host = left_in_host(root)) least = AvailableMemory{.bytes = *host};
  base::visit_groups(root, "memory", [&](const std::string& folder, base::GroupVersion version) {
    const std::optional<AvailableMemory> left = left_in_group(folder, files_of(version));
    if (left && (!least || left->bytes < least->bytes)) least = left;
  });
  return least;
}

std::optional<MemoryLimit> memory_limit(std::uint64_t most, const std::string& root) {
  std::optional<MemoryLimit> least;
  base::visit_groups(root, "memory", [&](const std::string& folder, base::GroupVersion version) {
    const std::string file = folder + files_of(version).limit;
    const Bytes limit = number_in(file);
    if (limit && *limit < (least ? least->bytes : most)) least = MemoryLimit{*limit, file};
  });
  return least;
}

MemoryKills::MemoryKills(std::string root)
    : root_(std::move(root)), before_(kills_in_group(root_)) {}

std::string MemoryKills::text() const {
  if (kills_in_group(root_) <= before_) return "";
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;  // in version 1, more means no limit
  const std::optional<MemoryLimit> limit = memory_limit(kNoLimit, root_);
  if (!limit) return "; the kernel's OOM killer ended a process";
  return "; the kernel's OOM killer ended a process: " + limit->file + " allows " +
         base::memory_text(limit->bytes);
}

}  // namespace tools
