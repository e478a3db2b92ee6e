// What communicators on device memory say of CUDA's errors and of memory that is none of a device.
#pragma once

#include <string>

#include "backends/backend_error.h"
#include "io/gpu/cuda_runtime.h"

namespace backends {

// Calls; a CudaError becomes a PeerError with its text, as errors of the wire are.
template <typename Call>
decltype(auto) with_peer_errors(const Call& call) {
  try {
    return call();
  } catch (const base::cuda::CudaError& error) {
    throw PeerError(error.what());
  }
}

// Throws ConfigurationError unless `data` is a device's memory; `backend` is who says so.
inline void require_device_memory(const void* data, int device, const std::string& backend) {
  if (base::cuda::is_device_memory(data)) return;
  throw ConfigurationError(
      "backend " + backend + " got host memory, expected memory of CUDA device " +
      std::to_string(device) + ": choose another backend for training on the CPU");
}

}  // namespace backends
