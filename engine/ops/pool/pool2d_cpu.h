// The kernel tables of pooling on the CPU; pool2d.cc calls the one of the chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/pool/pool2d.h"

namespace engine::ops {

// A Pool2dGeometry with its batch, as plain numbers.
struct PoolSizes {
  std::int64_t n, in_h, in_w, channels, out_h, out_w, window, stride, padding;
};

// The sizes of global pooling.
struct GlobalSizes {
  std::int64_t n, pixels, channels;
};

// Results do not depend on the number of threads.
struct Pool2dTable {
  void (*max_forward)(const MaxPool2dForward& o, const PoolSizes& sizes, ThreadPool& threads);
  void (*max_backward)(const MaxPool2dBackward& o, const PoolSizes& sizes, ThreadPool& threads);
  void (*average_forward)(const AveragePool2dForward& o, const PoolSizes& sizes,
                          ThreadPool& threads);
  void (*average_backward)(const AveragePool2dBackward& o, const PoolSizes& sizes,
                           ThreadPool& threads);
  void (*global_forward)(const TensorView& x, const TensorView& y, const GlobalSizes& sizes,
                         ThreadPool& threads);
  void (*global_backward)(const TensorView& dy, const TensorView& dx, const GlobalSizes& sizes,
                          bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(Pool2dTable, pool2d_table)
ENGINE_STORED_TABLE(Pool2dTable, pool2d_table)

}  // namespace engine::ops
