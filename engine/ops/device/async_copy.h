// Copies from global to shared memory that do not wait (cp.async, sm_80 and later). On older
// devices a copy is complete when its function returns, so that commit and wait do nothing there.
// For .cu files only.
#pragma once

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Copies 16 bytes from global to shared memory without passing through registers; zeros if `valid`,
// 16 or 0, is 0. The copy is visible to this thread after commit_copies() and wait_copies(),
// and to the block after an additional barrier.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, int valid = 16) {
#if ENGINE_BEFORE_80
  *static_cast<uint4*>(shared) = valid > 0 ? *static_cast<const uint4*>(global) : uint4{};
#elif defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid)
               : "memory");
#else
  simt::copy_async(shared, global, 16, static_cast<std::size_t>(valid));
#endif
}
// Copies 16 bytes, or writes 16 zeros if not `valid`, at the cost of the copy alone.
__device__ __forceinline__ void copy_or_zero_16(void* shared, const void* global, bool valid) {
#if ENGINE_BEFORE_80
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : uint4{};
#elif defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile(
      "{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p;}" ::"r"(
          to),
      "l"(global), "r"(static_cast<unsigned>(valid))
      : "memory");
#else
  simt::copy_async(shared, global, 16, valid ? 16 : 0);
#endif
}
// Copies `valid` bytes (4, 2 or 0), then zeros up to 4 bytes, for rows that are not aligned to 16.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global, int valid = 4) {
#if ENGINE_BEFORE_80
  *static_cast<unsigned*>(shared) = valid == 4   ? *static_cast<const unsigned*>(global)
                                    : valid == 2 ? *static_cast<const unsigned short*>(global)
                                                 : 0u;
#elif defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(valid)
               : "memory");
#else
  simt::copy_async(shared, global, 4, static_cast<std::size_t>(valid));
#endif
}
__device__ __forceinline__ void commit_copies() {
#if ENGINE_BEFORE_80
#elif defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::commit_copies();
#endif
}
// Waits until at most `Pending` of this thread's committed groups are in flight.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
#if ENGINE_BEFORE_80
#elif defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#else
  simt::wait_copies(Pending);
#endif
}

}  // namespace engine::ops::cuda
