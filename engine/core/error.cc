// The one check helper of the error family.
#include "engine/core/error.h"

namespace engine {

void require(bool condition, const char* what) {
  if (!condition) throw Error(std::string("internal: ") + what);
}

}  // namespace engine
