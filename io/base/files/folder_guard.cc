// The process has one list of guards, since the writers of files do not know who owns a folder.
#include "io/base/files/folder_guard.h"

#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace io {
namespace {

struct GuardEntry {
  const FolderGuard* owner;
  const std::string* folder;
  const std::function<std::string()>* fault;
};

struct GuardList {
  std::shared_mutex mutex;
  std::vector<GuardEntry> entries;
};

// Never destroyed: threads may write until the process ends.
GuardList& guards() {
  static GuardList& list = *new GuardList;
  return list;
}

}  // namespace

FolderGuard::FolderGuard(std::string folder, std::function<std::string()> fault)
    : folder_(std::move(folder)), fault_(std::move(fault)) {
  const std::unique_lock lock(guards().mutex);
  guards().entries.push_back({this, &folder_, &fault_});
}

FolderGuard::~FolderGuard() {
  const std::unique_lock lock(guards().mutex);
  std::erase_if(guards().entries, [this](const GuardEntry& entry) { return entry.owner == this; });
}

std::string folder_fault(const std::string& file) {
  const std::shared_lock lock(guards().mutex);
  if (guards().entries.empty()) return "";
  const std::string folder = std::filesystem::path(file).parent_path().string();
  for (const GuardEntry& entry : guards().entries) {
    if (*entry.folder != folder) continue;
    if (std::string fault = (*entry.fault)(); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace io
