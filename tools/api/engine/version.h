// The version of the library's interface, and the macros that export it. Installed public headers
// have the prefix engine/.
#pragma once

// The version of these headers, MAJOR.MINOR.PATCH in the sense of semantic versioning. docs/api.md
// describes what each number guarantees.
#define ENGINE_API_VERSION_MAJOR 0
#define ENGINE_API_VERSION_MINOR 2
#define ENGINE_API_VERSION_PATCH 0
// For #if: 1'002'003 is 1.2.3.
#define ENGINE_API_VERSION \
  (ENGINE_API_VERSION_MAJOR * 1000000 + ENGINE_API_VERSION_MINOR * 1000 + ENGINE_API_VERSION_PATCH)

// ENGINE_API marks what the shared library exports, ENGINE_HIDDEN the parts of it that stay
// internal.
#define ENGINE_API __attribute__((visibility("default")))
#define ENGINE_HIDDEN __attribute__((visibility("hidden")))

namespace engine::api {

// Return the version of the library that the program runs with: as ENGINE_API_VERSION, and as text
// with the commit that it was built from: "0.2.0 (1a2b3c4)".
ENGINE_API int version();
ENGINE_API const char* version_text();

}  // namespace engine::api
