// Opening the files that a run writes in its folder, which may have come from elsewhere: a link
// there, or a second name of one of its files, would lead the write to another file of the user.
#pragma once

#include <string>

namespace io {

// Whose choice the name of a file is: a run's own files have fixed names in its folder; others are
// named by the user, and may be links, devices or pipes.
enum class NamedBy { kUser, kRun };

// Opens a regular file that has this one name, with `flags` of open(); with O_CREAT, makes it if it
// is missing. Follows no link of that name, waits for nobody, truncates nothing. The caller closes
// the descriptor. Throws CannotCreateError, which says what was found.
int open_own_file(const std::string& path, int flags);

// The folder itself, for openat(), made if it is missing: likewise no link. Throws
// CannotCreateError.
int open_own_folder(const std::string& path);

// Throws CannotCreateError for a name that the two functions above would not open because it is a
// link or has a second name; a missing file is none.
void check_own_name(const std::string& path);

}  // namespace io
