// Opens the files that a run writes in its folder. The folder may come from elsewhere: a link
// there, or a second name of one of its files, would redirect the write to another file of the
// user.
#pragma once

#include <sys/types.h>

#include <string>

#include "io/base/files/descriptor.h"

namespace io {

// The origin of a file name: a run's own files have fixed names in its folder; others are named by
// the user, and may be links, devices or pipes.
enum class NamedBy { kUser, kRun };

// Opens a regular file that has this one name, with `flags` of open(); with O_CREAT, makes it with
// `mode` if it is missing. Does not follow a link of that name, wait for another process, or
// truncate. Throws CannotCreateError, which says what was found.
base::Descriptor open_own_file(const std::string& path, int flags, mode_t mode = 0666);

// The folder itself, for openat(), made if it is missing: likewise no link. Throws
// CannotCreateError.
base::Descriptor open_own_folder(const std::string& path);

// Throws CannotCreateError for a name that the two functions above would reject because it is a
// link or has a second name; a missing file is accepted.
void check_own_name(const std::string& path);

}  // namespace io
