// Requests large pages for big buffers by madvise.
#include "io/base/machine/large_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace base {

void use_large_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kLargePageBytes = 2 << 20;
  if (bytes < kLargePageBytes) return;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  // Starts at the first whole page.
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(data) % page;
  madvise(static_cast<std::byte*>(data) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
}

}  // namespace base
