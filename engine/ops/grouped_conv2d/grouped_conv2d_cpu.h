// The kernel tables of grouped convolution on the CPU; grouped_conv2d.cc calls the one of the
// chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/grouped_conv2d/grouped_conv2d_operands.h"

namespace engine::ops {

// A GroupedConv2dGeometry with its batch, as plain numbers.
struct GroupedConvSizes {
  std::int64_t n, in_h, in_w, in, out_h, out_w, out, kernel, stride, padding, groups;
  // The rows of dy are summed in this many pieces for the gradient of the weights. It depends on
  // nothing but the other sizes.
  std::int64_t pieces;
};

// `scratch` has the gradients of weight and bias once for each piece, and at least a weight. The
// bits of results do not depend on the number of threads.
struct GroupedConv2dTable {
  void (*forward)(const GroupedConv2dForward& o, const GroupedConvSizes& sizes,
                  ThreadPool& threads);
  void (*backward_data)(const GroupedConv2dBackwardData& o, const GroupedConvSizes& sizes,
                        ThreadPool& threads, float* scratch);
  void (*backward_weights)(const GroupedConv2dBackwardWeights& o, const GroupedConvSizes& sizes,
                           ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(GroupedConv2dTable, grouped_conv2d_table)
ENGINE_STORED_TABLE(GroupedConv2dTable, grouped_conv2d_table)

}  // namespace engine::ops
