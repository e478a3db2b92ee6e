// Loads libnccl and libcudart.
#include "backends/nccl/nccl_library.h"

#include <dlfcn.h>

#include "backends/backend_error.h"
#include "backends/nccl/nccl_backend.h"

namespace backends {
namespace {

void* open_first(std::initializer_list<const char*> names) {
  std::string reasons;
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    reasons += std::string(reasons.empty() ? "" : "; ") + dlerror();
  }
  throw ConfigurationError("no " + std::string(*names.begin()) + " (" + reasons + ")");
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw ConfigurationError(std::string("a library too old for this program: it has no ") + name);
}

NcclLibrary load() {
  NcclLibrary library;
  void* nccl = open_first({"libnccl.so.2"});
  // The runtime that the headers are of first; any other has the same few functions.
  void* cuda = open_first({"libcudart.so", "libcudart.so.13", "libcudart.so.12"});
  find(cuda, "cudaFree", library.cudaFree);
  find(cuda, "cudaGetDevice", library.cudaGetDevice);
  find(cuda, "cudaGetDeviceCount", library.cudaGetDeviceCount);
  find(cuda, "cudaGetErrorString", library.cudaGetErrorString);
  find(cuda, "cudaMalloc", library.cudaMalloc);
  find(cuda, "cudaMemcpyAsync", library.cudaMemcpyAsync);
  find(cuda, "cudaPointerGetAttributes", library.cudaPointerGetAttributes);
  find(cuda, "cudaSetDevice", library.cudaSetDevice);
  find(cuda, "cudaStreamCreateWithFlags", library.cudaStreamCreateWithFlags);
  find(cuda, "cudaStreamDestroy", library.cudaStreamDestroy);
  find(cuda, "cudaStreamQuery", library.cudaStreamQuery);
  find(nccl, "ncclAllGather", library.ncclAllGather);
  find(nccl, "ncclAllReduce", library.ncclAllReduce);
  find(nccl, "ncclBroadcast", library.ncclBroadcast);
  find(nccl, "ncclCommAbort", library.ncclCommAbort);
  find(nccl, "ncclCommDestroy", library.ncclCommDestroy);
  find(nccl, "ncclCommFinalize", library.ncclCommFinalize);
  find(nccl, "ncclCommGetAsyncError", library.ncclCommGetAsyncError);
  find(nccl, "ncclCommInitRankConfig", library.ncclCommInitRankConfig);
  find(nccl, "ncclGetErrorString", library.ncclGetErrorString);
  find(nccl, "ncclGetUniqueId", library.ncclGetUniqueId);
  find(nccl, "ncclReduceScatter", library.ncclReduceScatter);
  return library;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

const std::string& missing_for_nccl() {
  static const std::string missing = []() -> std::string {
    try {
      int devices = 0;
      const cudaError_t code = nccl_library().cudaGetDeviceCount(&devices);
      if (code != cudaSuccess) return std::string("no CUDA device (") + nccl_library().cudaGetErrorString(code) + ")";
      return devices > 0 ? "" : "no CUDA device";
    } catch (const ConfigurationError& error) {
      return error.what();
    }
  }();
  return missing;
}

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw PeerError(std::string(call) + ": " + nccl_library().cudaGetErrorString(code));
}

void check_nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess) throw PeerError(std::string(call) + ": " + nccl_library().ncclGetErrorString(code));
}

}  // namespace backends
