// Returns the compiled-in version.
#include "engine/version.h"

#include <string_view>

#include "tools/report/output/build_info.h"

#define ENGINE_TEXT_OF(number) #number
#define ENGINE_TEXT(number) ENGINE_TEXT_OF(number)

namespace engine::api {

static_assert(std::string_view(ENGINE_VERSION) ==
                  ENGINE_TEXT(ENGINE_API_VERSION_MAJOR) "." ENGINE_TEXT(
                      ENGINE_API_VERSION_MINOR) "." ENGINE_TEXT(ENGINE_API_VERSION_PATCH),
              "tools/api/engine/version.h and project() in CMakeLists.txt differ");

int version() { return ENGINE_API_VERSION; }
const char* version_text() { return ENGINE_VERSION " (" ENGINE_COMMIT ")"; }

}  // namespace engine::api
