// Limits of this process, above all that on open files, connections included.
#pragma once

#include <string>

#include "backends/backend_error.h"

namespace backends {

// A call failed because of a limit of this process, which no other rank can have caused.
class LimitError : public Error {
 public:
  using Error::Error;
};

// Throws LimitError unless `count` more files can be opened, because libraries abort or wait
// forever if they cannot open one. `what` names the user of the files, for the message.
void require_files(int count, const std::string& what);

}  // namespace backends
