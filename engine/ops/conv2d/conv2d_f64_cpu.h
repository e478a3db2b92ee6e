// The kernel tables of float64 convolution on the CPU; conv2d.cc calls the one of the chosen
// instruction set.
#pragma once

#include "engine/ops/conv2d/conv2d_cpu.h"

namespace engine::ops {

// Like Conv2dTable and Conv2dWeightsTable, for any stride and in doubles; `scratch` is large enough
// for all three. No result depends on the number of threads. The gradient of the bias is not
// included.
struct Conv2dF64Table {
  std::int64_t (*scratch)(const ConvSizes& sizes, int threads);
  void (*forward)(const Conv2dForward& o, const ConvSizes& sizes, ThreadPool& threads,
                  double* scratch);
  void (*backward_data)(const Conv2dBackwardData& o, const ConvSizes& sizes, ThreadPool& threads,
                        double* scratch);
  void (*backward_weights)(const Conv2dBackwardWeights& o, const ConvSizes& sizes,
                           ThreadPool& threads, double* scratch);
};

ENGINE_ISA_TABLE(Conv2dF64Table, conv2d_f64_table)

}  // namespace engine::ops
