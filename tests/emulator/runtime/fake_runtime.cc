// Devices and errors of CUDA's runtime on the CPU.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"

namespace fake {

Machine& machine() {
  static Machine* m = new Machine;  // outlives static destructors
  return *m;
}

cudaError_t fail(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}

cudaError_t failing(const char* function, cudaError_t code) {
  Machine& m = machine();
  loads_at_start();
  if (m.lost != cudaSuccess) return fail(m.lost);
  if (!is_chosen(function)) return cudaSuccess;
  if (fails_for_good()) m.lost = code;
  return fail(code);
}

}  // namespace fake

using namespace fake;

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    default:
      return "another CUDA error";
  }
}
const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return cudaGetErrorName(code);
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  ENGINE_MAY_FAIL(cudaErrorNoDevice);
  *count = device_count();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  return *device = current_device, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = device_bytes();
  properties->multiProcessorCount = processor_count();
  properties->major = capability_of(device) / 10;
  properties->minor = capability_of(device) % 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrMultiProcessorCount            ? processor_count()
           : attribute == cudaDevAttrComputeCapabilityMajor       ? capability_of(device) / 10
           : attribute == cudaDevAttrComputeCapabilityMinor       ? capability_of(device) % 10
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? max_shared_bytes(device)
                                                                  : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                are_slices() ? 1 : device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  synchronize_current_device();
  return cudaSuccess;
}

}  // extern "C"
