// Memory of CUDA's runtime on the CPU: allocations, copies, fills.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/fake_settings.h"
#include "tests/emulator/simt/simt.h"

namespace fake {
namespace {

thread_local int scopes = 0;       // that the thread is in
thread_local bool opened = false;  // by this thread

void set_access(int protection) {
  for (auto& [start, block] : machine().device_blocks)
    mprotect(block.mapping + getpagesize(),
             block.mapping_bytes - 2 * static_cast<std::size_t>(getpagesize()), protection);
}

std::map<std::uintptr_t, Block>::const_iterator find_block(
    const std::map<std::uintptr_t, Block>& blocks, std::uintptr_t address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return blocks.end();
  --after;
  return address < after->first + std::max<std::size_t>(after->second.bytes, 1) ? after
                                                                                : blocks.end();
}

cudaError_t allocate(std::map<std::uintptr_t, Block>& blocks, void** pointer, std::size_t bytes,
                     int device, int protection) {
  const auto page = static_cast<std::size_t>(getpagesize());
  const std::size_t data = (bytes + 255) / 256 * 256, pages = (data + page - 1) / page * page,
                    total = pages + 2 * page;
  void* mapping =
      mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  auto* base = static_cast<std::byte*>(mapping);
  std::byte* start = base + page + (pages - data);  // the end touches the page that is never mapped
  mprotect(base + page, pages, PROT_READ | PROT_WRITE);
  if (bytes <= (std::size_t{64} << 20)) std::memset(start, 0xff, bytes);
  mprotect(base + page, pages, protection);
  blocks[reinterpret_cast<std::uintptr_t>(start)] = {base, total, bytes, device};
  *pointer = start;
  return cudaSuccess;
}

cudaError_t release(std::map<std::uintptr_t, Block>& blocks, void* pointer) {
  const auto found = blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == blocks.end()) return fail(cudaErrorInvalidValue);
  munmap(found->second.mapping, found->second.mapping_bytes);
  blocks.erase(found);
  return cudaSuccess;
}

void copy_on(EmulatedStream& stream, void* to, const void* from, std::size_t bytes) {
  // From memory that is not pinned the real copy takes its bytes before it returns; here, too.
  const cudaPointerAttributes source = attributes_of(from), target = attributes_of(to);
  if (bytes == 0) return;
  if (source.type == cudaMemoryTypeUnregistered) {
    auto kept = std::make_shared<std::vector<std::byte>>(
        static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    issue(stream, [=] { std::memcpy(to, kept->data(), bytes); });
  } else {
    issue(stream, [=] { std::memcpy(to, from, bytes); });
    if (target.type == cudaMemoryTypeUnregistered && !stream.capture) drain(stream, stream.issued);
  }
}

}  // namespace

WorkScope::WorkScope() { ++scopes; }
WorkScope::~WorkScope() {
  if (--scopes > 0 || !opened) return;
  opened = false;
  const std::lock_guard lock(machine().mutex);
  if (--machine().open == 0) set_access(PROT_NONE);
}

void open_memory() {
  if (opened) return;
  opened = true;
  const std::lock_guard lock(machine().mutex);
  if (machine().open++ == 0) set_access(PROT_READ | PROT_WRITE);
}

cudaPointerAttributes attributes_of(const void* pointer) {
  const std::lock_guard lock(machine().mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  cudaPointerAttributes attributes{};
  const auto device = find_block(machine().device_blocks, address);
  if (device != machine().device_blocks.end()) {
    attributes.type = cudaMemoryTypeDevice;
    attributes.device = device->second.device;
    attributes.devicePointer = const_cast<void*>(pointer);
  } else if (find_block(machine().host_blocks, address) != machine().host_blocks.end()) {
    attributes.type = cudaMemoryTypeHost;
    attributes.hostPointer = const_cast<void*>(pointer);
  }
  return attributes;
}

}  // namespace fake

using namespace fake;

namespace simt {
void open_device_memory() { open_memory(); }

DeviceRange device_range(std::uintptr_t address) {
  const std::lock_guard lock(machine().mutex);
  const auto& blocks = machine().device_blocks;
  const auto found = find_block(blocks, address);
  return found == blocks.end() ? DeviceRange{} : DeviceRange{found->first, found->second.bytes};
}
}  // namespace simt

extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  const std::lock_guard lock(machine().mutex);
  *total_bytes = device_bytes();
  *free_bytes = *total_bytes - std::min(*total_bytes, machine().used[current_device]);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  if (current_device >= device_count()) return fail(cudaErrorNoDevice);
  if (bytes == 0) return *pointer = nullptr, cudaSuccess;
  const std::lock_guard lock(machine().mutex);
  if (machine().used[current_device] + bytes > device_bytes())
    return fail(cudaErrorMemoryAllocation);
  machine().used[current_device] += bytes;
  return allocate(machine().device_blocks, pointer, bytes, current_device,
                  machine().open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}
cudaError_t cudaFree(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (pointer == nullptr) return cudaSuccess;
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().device_blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found != machine().device_blocks.end())
    machine().used[found->second.device] -= found->second.bytes;
  return release(machine().device_blocks, pointer);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  if (bytes == 0) return *pointer = nullptr, cudaSuccess;
  const std::lock_guard lock(machine().mutex);
  return allocate(machine().host_blocks, pointer, bytes, 0, PROT_READ | PROT_WRITE);
}
cudaError_t cudaFreeHost(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (pointer == nullptr) return cudaSuccess;
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  return release(machine().host_blocks, pointer);
}
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  ENGINE_MAY_FAIL(cudaErrorMemoryAllocation);
  const std::lock_guard lock(machine().mutex);
  machine().host_blocks[reinterpret_cast<std::uintptr_t>(pointer)] = {nullptr, 0, bytes, 0};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  synchronize_current_device();
  const std::lock_guard lock(machine().mutex);
  const auto found = machine().host_blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == machine().host_blocks.end()) return fail(cudaErrorInvalidValue);
  machine().host_blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  *attributes = attributes_of(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  copy_on(stream_of(stream), to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (captures > 0) return fail(cudaErrorStreamCaptureUnsupported);
  copy_on(default_stream(), to, from, bytes);
  drain(default_stream(), default_stream().issued);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  if (stream_of(stream).capture && capture_mode(stream_of(stream).device) == "no-fills") {
    stream_of(stream).capture->valid = false;
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  issue(stream_of(stream), [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  ENGINE_MAY_FAIL(cudaErrorLaunchFailure);
  issue(default_stream(), [=] { std::memset(to, value, bytes); });
  drain(default_stream(), default_stream().issued);
  return cudaSuccess;
}

}  // extern "C"
