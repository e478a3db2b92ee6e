// Pooling in float32 on the CPU: what pool2d.cc calls for the chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// A Pool2dGeometry with its batch, as plain numbers.
struct PoolSizes {
  std::int64_t n, in_h, in_w, channels, out_h, out_w, window, stride, padding;
};

// Operands as in pool2d.h; `argmax` of the forward pass may be nullptr. Results do not depend on
// the number of threads.
struct Pool2dTable {
  void (*max_forward)(const PoolSizes& sizes, const float* x, float* y, std::uint8_t* argmax,
                      ThreadPool& threads);
  void (*max_backward)(const PoolSizes& sizes, const float* dy, const std::uint8_t* argmax,
                       float* dx, bool add, ThreadPool& threads);
  void (*average_forward)(const PoolSizes& sizes, const float* x, float* y, ThreadPool& threads);
  void (*average_backward)(const PoolSizes& sizes, const float* dy, float* dx, bool add,
                           ThreadPool& threads);
  void (*global_forward)(std::int64_t n, std::int64_t pixels, std::int64_t channels, const float* x,
                         float* y, ThreadPool& threads);
  void (*global_backward)(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                          const float* dy, float* dx, bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(Pool2dTable, pool2d_table)

}  // namespace engine::ops
