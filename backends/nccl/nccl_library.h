// The functions of libnccl and libcudart that the nccl backend calls, found at run time.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace backends {

// One member a function, of the type that its header declares.
struct NcclLibrary {
  decltype(&::cudaFree) cudaFree = nullptr;
  decltype(&::cudaGetDevice) cudaGetDevice = nullptr;
  decltype(&::cudaGetDeviceCount) cudaGetDeviceCount = nullptr;
  decltype(&::cudaGetErrorString) cudaGetErrorString = nullptr;
  cudaError_t (*cudaMalloc)(void**, std::size_t) = nullptr;  // overloaded in C++
  decltype(&::cudaMemcpyAsync) cudaMemcpyAsync = nullptr;
  decltype(&::cudaPointerGetAttributes) cudaPointerGetAttributes = nullptr;
  decltype(&::cudaSetDevice) cudaSetDevice = nullptr;
  decltype(&::cudaStreamCreateWithFlags) cudaStreamCreateWithFlags = nullptr;
  decltype(&::cudaStreamDestroy) cudaStreamDestroy = nullptr;
  decltype(&::cudaStreamQuery) cudaStreamQuery = nullptr;

  decltype(&::ncclAllGather) ncclAllGather = nullptr;
  decltype(&::ncclAllReduce) ncclAllReduce = nullptr;
  decltype(&::ncclBroadcast) ncclBroadcast = nullptr;
  decltype(&::ncclCommAbort) ncclCommAbort = nullptr;
  decltype(&::ncclCommDestroy) ncclCommDestroy = nullptr;
  decltype(&::ncclCommFinalize) ncclCommFinalize = nullptr;
  decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError = nullptr;
  decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig = nullptr;
  decltype(&::ncclGetErrorString) ncclGetErrorString = nullptr;
  decltype(&::ncclGetUniqueId) ncclGetUniqueId = nullptr;
  decltype(&::ncclReduceScatter) ncclReduceScatter = nullptr;
};

// Loads both libraries on first use and keeps them. Throws ConfigurationError that says which one is missing, and why.
const NcclLibrary& nccl_library();

// Throw PeerError "CALL: what it says" unless the code is success.
void check_cuda(cudaError_t code, const char* call);
void check_nccl(ncclResult_t code, const char* call);

}  // namespace backends
