// Creates folders below the temporary folder, which all users share.
#include "tools/launch/group/flight_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/base/files/io_error.h"
#include "io/base/files/system_error_text.h"

namespace tools {
namespace {

void make_own(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw io::CannotCreateError("cannot make " + path + ": " + base::system_error_text(errno));
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0)
    throw io::CannotCreateError("cannot look at " + path + ": " + base::system_error_text(errno));
  if (!S_ISDIR(found.st_mode)) throw io::CannotCreateError(path + " is not a folder");
  if (found.st_uid != geteuid())
    throw io::CannotCreateError(path + " belongs to user " + std::to_string(found.st_uid) +
                                ", not to " + std::to_string(geteuid()));
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    throw io::CannotCreateError(path + " can be written by other users");
}

}  // namespace

std::string own_flight_folder(const std::string& base, const std::string& job) {
  make_own(base);
  const std::string folder = base + "/" + job;
  make_own(folder);
  return folder;
}

}  // namespace tools
