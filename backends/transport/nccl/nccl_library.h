// Loads the functions of libnccl that the nccl backend calls, at run time.
//
// ENGINE_NCCL_LIBRARY names the library; else the system's search path is searched for
// libnccl.so.2. With ENGINE_NCCL_REGISTER=0 memory is not registered, as with a library that cannot
// do so. With ENGINE_NCCL_BLOCKING=1 calls return when they have been submitted to the device, and
// block the calling thread until then.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace backends {

// Has one member per function, with the type that nccl.h declares.
struct NcclLibrary {
  std::string path;
  int version = 0;        // 22809: 2.28.9
  bool registers = true;  // false: ENGINE_NCCL_REGISTER=0
  bool blocking = false;  // ENGINE_NCCL_BLOCKING=1

  decltype(&::ncclAllGather) ncclAllGather = nullptr;
  decltype(&::ncclAllReduce) ncclAllReduce = nullptr;
  decltype(&::ncclBroadcast) ncclBroadcast = nullptr;
  decltype(&::ncclCommAbort) ncclCommAbort = nullptr;
  decltype(&::ncclCommDestroy) ncclCommDestroy = nullptr;
  decltype(&::ncclCommFinalize) ncclCommFinalize = nullptr;
  decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError = nullptr;
  decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig = nullptr;
  decltype(&::ncclGetErrorString) ncclGetErrorString = nullptr;
  decltype(&::ncclGetLastError) ncclGetLastError = nullptr;
  decltype(&::ncclGetUniqueId) ncclGetUniqueId = nullptr;
  decltype(&::ncclReduceScatter) ncclReduceScatter = nullptr;
  // These are null in a library older than 2.19.
  decltype(&::ncclCommRegister) ncclCommRegister = nullptr;
  decltype(&::ncclCommDeregister) ncclCommDeregister = nullptr;
  ncclResult_t (*ncclMemAlloc)(void**, std::size_t) = nullptr;
  decltype(&::ncclMemFree) ncclMemFree = nullptr;
};

// Loads the library on first use and keeps it. Throws ConfigurationError that names what is missing
// and why.
const NcclLibrary& nccl_library();
// Enqueues a group of sends and receives, which NCCL starts together: `bytes` with each of the
// ranks. Throws ConfigurationError if the library has no such calls.
ncclResult_t nccl_all_to_all(const void* input, std::size_t bytes, void* output, int ranks,
                             ncclComm_t comm, cudaStream_t stream);
std::string nccl_version_text(int version);  // e.g. "2.28.9"

// Throws PeerError "CALL: NCCL's message" unless the code is ncclSuccess.
void check_nccl(ncclResult_t code, const char* call);

}  // namespace backends
