// Distinguishes this user's folder from those that other users have made under its name.
#include "backends/membership/acceptor_folder.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/store/private_files.h"
#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/environment.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr int kFolderNames = 16;

std::string user_text(uid_t uid) {
  std::string memory(16'384, '\0');
  struct passwd entry {};
  struct passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, memory.data(), memory.size(), &found) != 0 || found == nullptr)
    return "user " + std::to_string(uid);
  return "user " + base::escape_text(entry.pw_name) + " (" + std::to_string(uid) + ")";
}

// Returns true if `path` is a folder of this user, false if it is another user's. Throws if others
// may enter it.
bool is_own_folder(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || status.st_uid != geteuid()) return false;
  if (!S_ISDIR(status.st_mode) || (status.st_mode & 077) != 0)
    throw AuthenticationError(path + " must be a folder of this user that nobody else may enter");
  return true;
}

// Returns a folder in the user's home, for when other users have taken all names in memory. Several
// hosts may share the home, so the name contains the host.
AcceptorFolder home_folder(const std::string& reason) {
  const std::string folder = user_config_folder() + "/registers-" + host_id();
  for (std::size_t slash = folder.find('/', 1); slash != std::string::npos;
       slash = folder.find('/', slash + 1))
    static_cast<void>(mkdir(folder.substr(0, slash).c_str(), 0700));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw io::CannotCreateError(reason + ", and " + folder +
                                " cannot be made: " + base::system_error_text(errno));
  if (!is_own_folder(folder)) throw AuthenticationError(folder + " belongs to another user");
  return {folder, reason + ": acceptor files of elastic jobs are in " + folder};
}

// Returns name `i` of those that are tried in order.
std::string folder_name(int i) {
  std::string root = "/dev/shm";
  if (access(root.c_str(), W_OK) != 0) root = base::environment("TMPDIR");
  if (root.empty()) root = "/tmp";
  const std::string first = root + "/engine-" + std::to_string(geteuid());
  return i == 0 ? first : first + "-" + std::to_string(i);
}

}  // namespace

AcceptorFolder find_acceptor_folder() {
  std::string notice;
  for (int i = 0; i < kFolderNames; ++i) {
    const std::string path = folder_name(i);
    if (is_own_folder(path)) return {path, notice.empty() ? "" : notice + path};
    struct stat status {};
    if (notice.empty() && lstat(path.c_str(), &status) == 0)
      notice = path + " belongs to " + user_text(status.st_uid) +
               ", who keeps this user out: acceptor files of elastic jobs are in ";
  }
  return {};
}

AcceptorFolder make_acceptor_folder() {
  if (AcceptorFolder found = find_acceptor_folder(); !found.path.empty()) return found;
  for (int i = 0; i < kFolderNames; ++i) {
    const std::string path = folder_name(i);
    if (mkdir(path.c_str(), 0700) == 0) break;
    if (errno != EEXIST)
      throw io::CannotCreateError("cannot make " + path + ": " + base::system_error_text(errno));
  }
  // Another process may have been faster, also with an earlier name.
  AcceptorFolder made = find_acceptor_folder();
  if (made.path.empty())
    return home_folder(folder_name(0) + " to " + folder_name(kFolderNames - 1) +
                       " belong to other users");
  return made;
}

}  // namespace backends
