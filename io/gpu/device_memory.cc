// Keeps the purposes as a list on the stacks of their threads, and the allocated blocks by address.
#include "io/gpu/device_memory.h"

#include <map>
#include <mutex>
#include <utility>

#include "io/base/text/memory_text.h"

namespace base::cuda {
namespace {

thread_local const MemoryPurpose* innermost = nullptr;

struct Held {
  std::mutex mutex;
  std::map<const void*, std::pair<int, std::size_t>> blocks;  // device and bytes
};
Held& held() {
  static auto* it = new Held;  // outlives static destructors
  return *it;
}

std::string shortage_text(const MemoryShortage& s) {
  const std::string purpose = MemoryPurpose::text();
  return "out of memory on cuda:" + std::to_string(s.device) + ": " + memory_text(s.wanted) +
         " wanted" + (purpose.empty() ? "" : " for " + purpose) + ", " + memory_text(s.free) +
         " of " + memory_text(s.total) + " are free";
}

}  // namespace

MemoryPurpose::MemoryPurpose(const char* what) : what_(what), outer_(innermost) {
  innermost = this;
}
MemoryPurpose::~MemoryPurpose() { innermost = outer_; }

std::string MemoryPurpose::text() {
  std::string text;
  for (const MemoryPurpose* p = innermost; p != nullptr; p = p->outer_)
    text += (text.empty() ? "" : " of ") + std::string(p->what_);
  return text;
}

DeviceMemoryError::DeviceMemoryError(const MemoryShortage& shortage)
    : CudaError(shortage_text(shortage)), shortage_(shortage) {
  const std::lock_guard lock(held().mutex);
  for (const auto& [memory, block] : held().blocks)
    if (block.first == shortage.device) shortage_.held += block.second;
}

void note_allocated(const void* memory, std::size_t bytes, int device) {
  const std::lock_guard lock(held().mutex);
  held().blocks[memory] = {device, bytes};
}

void note_released(const void* memory) noexcept {
  const std::lock_guard lock(held().mutex);
  held().blocks.erase(memory);
}

}  // namespace base::cuda
