// The limit on the files, connections among them, that this process may have open.
#pragma once

#include <string>

namespace backends {

// strerror(), and the limit (as `ulimit -n` shows it) where that is what `error` is about.
std::string system_error_text(int error);

// Throws Error unless `count` more files can be opened: libraries abort, or wait for ever, where
// they are refused one. `what` needs them, for the message.
void require_files(int count, const std::string& what);

}  // namespace backends
