// The version of the library's interface; first of the public headers, which have the prefix
// engine/ where they are installed.
#pragma once

// Of these headers: MAJOR.MINOR.PATCH as of semantic versioning. docs/api.md says what stays when
// which of them changes.
#define ENGINE_API_VERSION_MAJOR 0
#define ENGINE_API_VERSION_MINOR 1
#define ENGINE_API_VERSION_PATCH 0
// For #if: 1'002'003 is 1.2.3.
#define ENGINE_API_VERSION \
  (ENGINE_API_VERSION_MAJOR * 1000000 + ENGINE_API_VERSION_MINOR * 1000 + ENGINE_API_VERSION_PATCH)

// Marks what the shared library exports, and what of that it keeps to itself.
#define ENGINE_API __attribute__((visibility("default")))
#define ENGINE_HIDDEN __attribute__((visibility("hidden")))

namespace engine::api {

// Of the library that the program runs with, as ENGINE_API_VERSION; and as text, with the commit
// that it was built from: "0.1.0 (1a2b3c4)".
ENGINE_API int version();
ENGINE_API const char* version_text();

}  // namespace engine::api
