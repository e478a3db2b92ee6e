// Loops that the memory-bound kernels share: over ranges, for Eigen's expressions, and over whole
// vectors followed by the remainder. Only for sources compiled once per instruction set (simd.h,
// cpu_dispatch.h).
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/stored.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns -1 in the first `count` lanes and 0 in the others.
ENGINE_INLINE Ints first_lanes(std::int64_t count) {
  Ints lane{};
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  return lane < Ints{} + static_cast<std::int32_t>(count);
}

// The valid elements of a vector: all, or the first `count`. choose() returns `v` in valid lanes
// and `other` in the rest.
struct AllLanes {
  template <class T>
  ENGINE_INLINE Floats load_from(const T* p) const {
    return load(p);
  }
  template <class T>
  ENGINE_INLINE void store_to(T* p, Floats v) const {
    store(p, v);
  }
  ENGINE_INLINE Floats choose(Floats v, Floats) const { return v; }
};
struct SomeLanes {
  std::int64_t count;
  template <class T>
  ENGINE_INLINE Floats load_from(const T* p) const {
    return load_partial(p, count);
  }
  template <class T>
  ENGINE_INLINE void store_to(T* p, Floats v) const {
    store_partial(p, v, count);
  }
  ENGINE_INLINE Floats choose(Floats v, Floats other) const {
    return select(first_lanes(count), v, other);
  }
};

// Calls body(lanes, i) for the vectors that cover [first, last).
template <class Body>
ENGINE_INLINE void for_each_vector(std::int64_t first, std::int64_t last, Body body) {
  std::int64_t i = first;
  for (; i + kWidth <= last; i += kWidth) body(AllLanes{}, i);
  if (i < last) body(SomeLanes{last - i}, i);
}

// Calls body(first, last) for ranges that cover [0, count), on all threads; small arrays are
// processed by the calling thread.
template <class Body>
ENGINE_INLINE void run_ranges(ThreadPool& threads, std::int64_t count, Body body) {
  constexpr std::int64_t kUnit = 4096;  // 16 KiB: below this, waking a thread costs more than it
                                        // saves
  threads.run((count + kUnit - 1) / kUnit, [=](std::int64_t first, std::int64_t last, int) {
    body(first * kUnit, smaller(last * kUnit, count));
  });
}

// Calls body(lanes, i) for the vectors that cover [0, count), on all threads.
template <class Body>
ENGINE_INLINE void run_flat(ThreadPool& threads, std::int64_t count, Body body) {
  run_ranges(threads, count,
             [=](std::int64_t first, std::int64_t last) { for_each_vector(first, last, body); });
}

// Writes `v`, or adds it to the memory.
template <bool kAdd, class Lanes, class T>
ENGINE_INLINE void put(Lanes lanes, T* p, Floats v) {
  lanes.store_to(p, kAdd ? lanes.load_from(p) + v : v);
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
