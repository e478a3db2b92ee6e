// The limit on the files, connections among them, that this process may have open.
#pragma once

#include <string>

namespace backends {

// Throws Error unless `count` more files can be opened: libraries abort, or wait for ever, where
// they are refused one. `what` needs them, for the message.
void require_files(int count, const std::string& what);

}  // namespace backends
