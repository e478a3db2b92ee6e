// Reads RLIMIT_NOFILE and /proc.
#include "backends/open_files.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>

namespace backends {

void require_files(int count, const std::string& what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  rlim_t open = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr && errno != EMFILE) return;  // no /proc: opening the files shows it
  if (folder == nullptr) open = limit.rlim_cur;
  while (folder != nullptr && readdir(folder) != nullptr) ++open;
  if (folder != nullptr) {
    closedir(folder);
    open -= 3;  // ".", ".." and the folder itself
  }
  if (open + static_cast<rlim_t>(count) <= limit.rlim_cur) return;
  throw LimitError(what + " takes up to " + std::to_string(count) + " open files, but " +
                   std::to_string(open) + " of at most " + std::to_string(limit.rlim_cur) +
                   " are open already: raise the limit (ulimit -n)");
}

}  // namespace backends
