// The wrappers over CUDA's runtime.
#include "backends/cuda_calls.h"

namespace backends {

void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // else the next call that asks reports this one again
  throw PeerError(std::string(call) + ": " + cudaGetErrorString(code));
}

CudaStream::CudaStream() {
  check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
}

CudaEvent::CudaEvent() {
  check_cuda(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
}
void CudaEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(handle_, stream), "cudaEventRecord");
}
void CudaEvent::make_wait(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, handle_, 0), "cudaStreamWaitEvent");
}
bool CudaEvent::done() const {
  const cudaError_t code = cudaEventQuery(handle_);
  if (code != cudaErrorNotReady) check_cuda(code, "cudaEventQuery");
  return code == cudaSuccess;
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
}

void copy_on(cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0)
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

bool stream_is_idle(cudaStream_t stream) {
  const cudaError_t code = cudaStreamQuery(stream);
  if (code != cudaErrorNotReady) check_cuda(code, "cudaStreamQuery");
  return code == cudaSuccess;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void require_device_memory(const void* data, int device, const char* backend) {
  cudaPointerAttributes found{};
  check_cuda(cudaPointerGetAttributes(&found, data), "cudaPointerGetAttributes");
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged)
    throw ConfigurationError(
        "backend " + std::string(backend) + " got host memory, expected memory of CUDA device " +
        std::to_string(device) + ": choose another backend for training on the CPU");
}

std::string no_device_reason() {
  int device = 0, count = 0;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) code = cudaGetDevice(&device);
  if (code == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  return std::string("no CUDA device (") +
         (code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code)) + ")";
}

void Patience::abort(std::string_view reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_.assign(reason);
  } catch (const std::exception&) {
    // Out of memory: it ends without saying why.
  }
  aborted_ = true;
}

void Patience::throw_if_aborted() const {
  if (!aborted_) return;
  const std::lock_guard lock(mutex_);
  throw PeerError("aborted: " + reason_);
}

}  // namespace backends
