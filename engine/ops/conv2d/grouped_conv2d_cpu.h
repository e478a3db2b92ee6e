// The kernel tables of float32 convolution of several groups on the CPU; conv2d.cc calls the one of
// the chosen instruction set. The gradient of the weights, too, has the same bits for any number of
// threads.
#pragma once

#include "engine/ops/conv2d/conv2d_cpu.h"

namespace engine::ops {

ENGINE_ISA_TABLE(Conv2dTable, grouped_conv2d_table)
ENGINE_STORED_TABLE(Conv2dTable, grouped_conv2d_table)
ENGINE_ISA_TABLE(Conv2dWeightsTable, grouped_conv2d_weights_table)
ENGINE_STORED_TABLE(Conv2dWeightsTable, grouped_conv2d_weights_table)

}  // namespace engine::ops
