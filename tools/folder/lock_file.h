// Creates the lock file of a run, which only users who may write it can lock, and replaces it if
// another process holds it.
#pragma once

#include <string>

#include "tools/folder/lock_sign.h"

namespace tools {

// Opens the file, and creates it if it is missing. A file of this user loses the read permission of
// a class (group, others) that may not write it, because any process that can open a file can lock
// it. Throws io::CannotCreateError.
int open_lock_file(const std::string& path);

// Creates the file, and locks it. Returns -1 if it exists, or another process was faster.
int make_lock_file(const std::string& path);

// Replaces the file at `path`, which `held` has open and another process has locked, by a locked
// and signed one, and returns the descriptor of the new file. Returns -1, and changes nothing, if
// the file at `path` is now another one, or its sign differs from `seen`. Throws
// io::CannotCreateError.
int replace_lock_file(const std::string& path, int held, const LockSign& seen);

// Returns true if `path` names the open file.
bool is_named(const std::string& path, int fd);

}  // namespace tools
