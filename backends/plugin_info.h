// Describes backends outside this build without loading them.
#pragma once

#include <string>

#include "backends/group.h"

namespace backends {

// Describes the plug-in that `--backend NAME` would load: usable if its file exists; the file is
// not opened. The note is the file, or the paths that were searched.
BackendInfo plugin_info(const std::string& name);

}  // namespace backends
