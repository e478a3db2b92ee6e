// Lets the owner of a folder forbid writes to it, e.g. after another process has taken it.
#pragma once

#include <functional>
#include <string>

namespace io {

// While it exists, AtomicFile and LineFile call `fault` immediately before a file directly in
// `folder` gets its name or grows, on any thread; a text other than "" states why it must not. The
// destructor waits for calls in progress. `fault` writes no such file.
class FolderGuard {
 public:
  FolderGuard(std::string folder, std::function<std::string()> fault);
  ~FolderGuard();
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;

 private:
  const std::string folder_;
  const std::function<std::string()> fault_;
};

// Returns what the guards of the folder of `file` state; "" if it may be written. Paths are
// compared as texts.
std::string folder_fault(const std::string& file);

}  // namespace io
