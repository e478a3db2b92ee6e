// Helpers that communicators on device memory share: errors of CUDA, and the check for device
// memory.
#pragma once

#include <string>

#include "backends/backend_error.h"
#include "io/gpu/cuda_runtime.h"

namespace backends {

// Runs `call` and turns a CudaError into a PeerError with the same text.
template <typename Call>
decltype(auto) with_peer_errors(const Call& call) {
  try {
    return call();
  } catch (const base::cuda::CudaError& error) {
    throw PeerError(error.what());
  }
}

// Throws ConfigurationError, which names `backend`, unless `data` is device memory.
inline void require_device_memory(const void* data, int device, const std::string& backend) {
  if (base::cuda::is_device_memory(data)) return;
  throw ConfigurationError(
      "backend " + backend + " got host memory, expected memory of CUDA device " +
      std::to_string(device) + ": choose another backend for training on the CPU");
}

}  // namespace backends
