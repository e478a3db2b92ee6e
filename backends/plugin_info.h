// Backends outside this build, as far as can be said without loading them.
#pragma once

#include <string>

#include "backends/group.h"

namespace backends {

// The plug-in that `--backend NAME` would load: usable if its file is there, which is not opened.
// The note is the file, or the places where it was looked for.
BackendInfo plugin_info(const std::string& name);

}  // namespace backends
