// Checks the limit on open files, connections included.
#pragma once

#include <string>

namespace backends {

// Throws Error unless `count` more files can be opened, because libraries abort or wait forever if
// they cannot open one. `what` names the user of the files, for the message.
void require_files(int count, const std::string& what);

}  // namespace backends
