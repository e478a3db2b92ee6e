// A backend plug-in that was compiled for an older version of the interface.
#include <cstring>

extern "C" const void* engine_backend_plugin(const char* abi) {
  static const int kRow = 0;
  return std::strcmp(abi, "engine-backend-3") == 0 ? &kRow : nullptr;
}
