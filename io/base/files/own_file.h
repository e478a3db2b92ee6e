// Opens the files that a run writes in its folder. The folder may come from elsewhere: a link
// there, or a second name of one of its files, would redirect the write to another file of the
// user.
#pragma once

#include <sys/types.h>

#include <string>

namespace io {

// The origin of a file name: a run's own files have fixed names in its folder; others are named by
// the user, and may be links, devices or pipes.
enum class NamedBy { kUser, kRun };

// Opens a regular file that has only this name, with `flags` of open(); with O_CREAT, creates it
// with `mode` if it is missing. Does not follow a link of that name, block, or truncate. The caller
// closes the descriptor. Throws CannotCreateError, which states the kind of file found.
int open_own_file(const std::string& path, int flags, mode_t mode = 0666);

// Opens the folder itself, for openat(), and creates it if it is missing; a link is rejected as
// well. Throws CannotCreateError.
int open_own_folder(const std::string& path);

// Throws CannotCreateError for a name that the two functions above would reject because it is a
// link or has a second name; a missing file is accepted.
void check_own_name(const std::string& path);

}  // namespace io
