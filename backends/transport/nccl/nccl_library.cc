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

// The calls between two ranks; null in a library older than 2.7.
struct PairCalls {
  decltype(&::ncclGroupStart) start = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;
  decltype(&::ncclGroupEnd) end = nullptr;
};

PairCalls load_pair_calls() {
  PairCalls calls;
  void* nccl = open_library();
  find_optional(nccl, "ncclGroupStart", calls.start);
  find_optional(nccl, "ncclSend", calls.send);
  find_optional(nccl, "ncclRecv", calls.receive);
  find_optional(nccl, "ncclGroupEnd", calls.end);
  return calls;
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

ncclResult_t nccl_all_to_all(const void* input, std::size_t bytes, void* output, int ranks,
                             ncclComm_t comm, cudaStream_t stream) {
  static const PairCalls calls = load_pair_calls();
  if (calls.start == nullptr || calls.send == nullptr || calls.receive == nullptr ||
      calls.end == nullptr)
    throw ConfigurationError("all_to_all needs ncclSend, which NCCL 2.7 brought; this is " +
                             nccl_version_text(nccl_library().version));
  ncclResult_t first = calls.start();
  const auto keep_first = [&](ncclResult_t result) {
    if (first == ncclSuccess && result != ncclInProgress) first = result;
  };
  for (int r = 0; r < ranks; ++r) {
    const std::size_t at = static_cast<std::size_t>(r) * bytes;
    keep_first(calls.send(static_cast<const char*>(input) + at, bytes, ncclUint8, r, comm, stream));
    keep_first(calls.receive(static_cast<char*>(output) + at, bytes, ncclUint8, r, comm, stream));
  }
  const ncclResult_t ended = calls.end();
  return first != ncclSuccess ? first : ended;
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
