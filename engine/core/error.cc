// Implements require(), the check for internal errors.
#include "engine/core/error.h"

namespace engine {

void require(bool condition, const char* what) {
  if (!condition) throw Error(std::string("internal: ") + what);
}

}  // namespace engine
