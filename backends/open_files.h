// The files that this process has open, connections among them, and the limit on them.
#pragma once

#include <string>

namespace backends {

// Throws Error unless `count` more files can be opened: libraries abort, or wait for ever, where
// they are refused one. `what` needs them, for the message.
void require_files(int count, const std::string& what);

}  // namespace backends
