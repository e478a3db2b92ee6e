// Loads backends from shared libraries outside this build, given by path, --backend
// ./libengine_x.so, or by name, --backend x.
//
// Such a library is compiled against these headers by the same compiler and exports
//   extern "C" const backends::Backend* engine_backend_plugin(const char* abi);
// which returns its row (static storage), or nullptr when `abi` is not the kBackendPluginAbi it was
// compiled with. docs/backend-plugins.md has an example.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"

namespace backends {

// Raise the number with any change of a header that a plug-in includes.
inline constexpr const char* kBackendPluginAbi = "engine-backend-10";
using BackendPluginEntry = const Backend* (*)(const char* abi);

// Returns the paths searched for a plug-in of this name, libengine_NAME.so: beside the program, the
// place in a build folder, and ../lib/engine, the place after installation.
std::vector<std::string> plugin_places(const std::string& name);
std::string find_plugin(const std::string& name);  // the first existing path, else ""

// Loads the library on first use and keeps it. Thread-safe. Throws ConfigurationError with the
// loader's reason.
const Backend& load_backend_plugin(const std::string& path);

}  // namespace backends
