// Allocates arenas: on the CPU an anonymous mapping for large blocks (with huge pages if the kernel
// provides them), on a CUDA device one allocation.
#include "engine/core/arena.h"

#include <sys/mman.h>

#include <optional>
#include <string>
#include <utility>

#include "engine/core/cuda.h"
#include "engine/core/cuda_host.h"
#include "engine/core/error.h"
#include "io/base/text/memory_text.h"

namespace engine {
namespace {

void fill_with_zeros(std::byte* device_memory, std::size_t bytes) {
  cuda::set_bytes_async(device_memory, 0, bytes, nullptr);
  cuda::synchronize_device();
}

}  // namespace

Arena::Arena(std::size_t bytes, Device device, const char* purpose)
    : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  if (device.kind == Device::Kind::kCuda) {
    std::optional<cuda::MemoryPurpose> scope;
    if (purpose != nullptr) scope.emplace(purpose);
    cuda::use_device(device.index);
    data_ = static_cast<std::byte*>(cuda::allocate(bytes));
    fill_with_zeros(data_, bytes);
    return;
  }
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    throw MemoryError("out of memory: " + base::memory_text(bytes) + " requested at once");
  madvise(block, bytes, MADV_HUGEPAGE);  // a hint: failure only costs speed
  data_ = static_cast<std::byte*>(block);
}

Arena::Arena(std::size_t bytes, Device device, MemorySource source)
    : bytes_(bytes), device_(device), source_(std::move(source)) {
  require(device.kind == Device::Kind::kCuda, "memory of a source is that of a CUDA device");
  if (bytes == 0) return;
  cuda::use_device(device.index);
  data_ = static_cast<std::byte*>(source_.allocate(bytes));
  fill_with_zeros(data_, bytes);
}

Arena::~Arena() {
  if (data_ == nullptr) return;
  if (source_.release)
    source_.release(data_);
  else if (device_.kind == Device::Kind::kCuda)
    cuda::release(data_);
  else
    munmap(data_, bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      source_(std::move(other.source_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(source_, other.source_);
  return *this;
}

}  // namespace engine
