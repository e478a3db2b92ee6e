// The file of a run's lock: made so that only those lock it who may write it, and replaced when
// somebody else holds it.
#pragma once

#include <string>

#include "tools/run/folder/lock_sign.h"

namespace tools {

// Opens the file, made if it is missing. A file of this user loses the read permission of a class
// (group, others) that may not write it: whoever can open a file can lock it, if only to read.
// Throws io::CannotCreateError.
int open_lock_file(const std::string& path);

// Makes the file, and locks it. Returns -1 where there is one, and where another process was
// quicker.
int make_lock_file(const std::string& path);

// Replaces the file at `path`, which `held` has open and another process has locked, by a locked
// and signed one, and returns that one's descriptor. Returns -1, and changes nothing, where the
// file at `path` is another one by now, or its sign differs from `seen`. Throws
// io::CannotCreateError.
int replace_lock_file(const std::string& path, int held, const LockSign& seen);

// Whether `path` names the file that is open.
bool is_named(const std::string& path, int fd);

}  // namespace tools
