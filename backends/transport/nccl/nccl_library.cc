// Loads libnccl.
#include "backends/transport/nccl/nccl_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "backends/backend_error.h"
#include "backends/transport/nccl/nccl_backend.h"
#include "io/base/machine/environment.h"
#include "io/gpu/cuda_runtime.h"

namespace backends {
namespace {

#if defined(ENGINE_NCCL_EMULATED)
constexpr const char* kUsualLibrary = ENGINE_NCCL_EMULATED;
#else
constexpr const char* kUsualLibrary = "libnccl.so.2";
#endif

void* open_library() {
  const char* chosen = std::getenv("ENGINE_NCCL_LIBRARY");
  const bool named = chosen != nullptr && *chosen != '\0';
  if (void* library = dlopen(named ? chosen : kUsualLibrary, RTLD_NOW | RTLD_LOCAL)) return library;
  throw ConfigurationError(
      (named ? "cannot load ENGINE_NCCL_LIBRARY (" : std::string("no ") + kUsualLibrary + " (") +
      dlerror() + ")");
}

template <typename Function>
void find_optional(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  find_optional(library, name, function);
  if (function == nullptr)
    throw ConfigurationError(std::string("libnccl is too old for this program: it lacks ") + name);
}

NcclLibrary load() {
  NcclLibrary library;
  void* nccl = open_library();
  find(nccl, "ncclAllGather", library.ncclAllGather);
  find(nccl, "ncclAllReduce", library.ncclAllReduce);
  find(nccl, "ncclBroadcast", library.ncclBroadcast);
  find(nccl, "ncclCommAbort", library.ncclCommAbort);
  find(nccl, "ncclCommDestroy", library.ncclCommDestroy);
  find(nccl, "ncclCommFinalize", library.ncclCommFinalize);
  find(nccl, "ncclCommGetAsyncError", library.ncclCommGetAsyncError);
  find(nccl, "ncclCommInitRankConfig", library.ncclCommInitRankConfig);
  find(nccl, "ncclGetErrorString", library.ncclGetErrorString);
  find(nccl, "ncclGetLastError", library.ncclGetLastError);
  find(nccl, "ncclGetUniqueId", library.ncclGetUniqueId);
  find(nccl, "ncclReduceScatter", library.ncclReduceScatter);
  library.registers = base::environment("ENGINE_NCCL_REGISTER") != "0";
  library.blocking = base::environment("ENGINE_NCCL_BLOCKING") == "1";
  if (library.registers) {
    find_optional(nccl, "ncclCommRegister", library.ncclCommRegister);
    find_optional(nccl, "ncclCommDeregister", library.ncclCommDeregister);
    find_optional(nccl, "ncclMemAlloc", library.ncclMemAlloc);
    find_optional(nccl, "ncclMemFree", library.ncclMemFree);
  }
  decltype(&::ncclGetVersion) version = nullptr;
  find(nccl, "ncclGetVersion", version);
  version(&library.version);
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(library.ncclAllReduce), &where) != 0 &&
      where.dli_fname != nullptr)
    library.path = where.dli_fname;
  return library;
}

// A process that forks ranks must not initialize CUDA, or its children cannot use it. So this
// checks only for the driver.
std::string missing_driver() {
#if defined(ENGINE_NCCL_EMULATED)
  return base::cuda::missing();
#else
  for (const char* device : {"/dev/nvidiactl", "/dev/dxg"}) {
    if (access(device, F_OK) == 0) return "";
  }
  return "no CUDA device (there is no /dev/nvidiactl: no driver is loaded)";
#endif
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const std::string& missing_for_nccl() {
  static const std::string missing = []() -> std::string {
    try {
      std::string driver = missing_driver();
      if (driver.empty()) nccl_library();
      return driver;
    } catch (const ConfigurationError& error) {
      return error.what();
    }
  }();
  return missing;
}

std::string describe_nccl() {
  return "NCCL " + nccl_version_text(nccl_library().version) + " (" + nccl_library().path + ")";
}

void check_nccl(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  const char* detail = nccl_library().ncclGetLastError(nullptr);
  std::string text = std::string(call) + ": " + nccl_library().ncclGetErrorString(code);
  if (detail != nullptr && *detail != '\0') text += std::string(" (") + detail + ")";
  throw PeerError(text);
}

}  // namespace backends
