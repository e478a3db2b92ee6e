// The kernel tables of float32 convolution on the CPU; conv2d.cc calls the one of the chosen
// instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/conv2d/conv2d_operands.h"

namespace engine::ops {

// A Conv2dGeometry with its batch, as plain numbers.
struct ConvSizes {
  std::int64_t n, in_h, in_w, in, out_h, out_w, out, kernel_h, kernel_w, stride, padding, groups;
};

// `scratch` is 64-byte aligned and has the number of floats that x_scratch returns for this or a
// larger n. The bits of forward and backward_data do not depend on the number of threads.
struct Conv2dTable {
  std::int64_t (*forward_scratch)(const ConvSizes& sizes, int threads);
  void (*forward)(const Conv2dForward& o, const ConvSizes& sizes, ThreadPool& threads,
                  float* scratch);
  std::int64_t (*backward_data_scratch)(const ConvSizes& sizes, int threads);
  void (*backward_data)(const Conv2dBackwardData& o, const ConvSizes& sizes, ThreadPool& threads,
                        float* scratch);
};

struct Conv2dWeightsTable {
  std::int64_t (*scratch)(const ConvSizes& sizes, int threads);
  void (*run)(const Conv2dBackwardWeights& o, const ConvSizes& sizes, ThreadPool& threads,
              float* scratch);
};

ENGINE_ISA_TABLE(Conv2dTable, conv2d_table)
ENGINE_ISA_TABLE(Conv2dWeightsTable, conv2d_weights_table)

// The operands of products are rounded to bf16; sums, the bias and its gradient are not.
ENGINE_BF16_TABLE(Conv2dTable, conv2d_table)
ENGINE_STORED_PRODUCTS(Conv2dTable, conv2d_table)
ENGINE_BF16_TABLE(Conv2dWeightsTable, conv2d_weights_table)
ENGINE_STORED_PRODUCTS(Conv2dWeightsTable, conv2d_weights_table)

}  // namespace engine::ops
