// The kernel tables of Winograd's convolution in float32 on the CPU; conv2d.cc calls the one of the
// chosen instruction set if winograd_rule.h selects it. REQUIRES: a kernel of 3 x 3 or 5 x 5,
// stride 1, padding smaller than the kernel's side.
#pragma once

#include "engine/ops/conv2d/conv2d_cpu.h"

namespace engine::ops {

ENGINE_ISA_TABLE(Conv2dTable, winograd_table)
ENGINE_STORED_TABLE(Conv2dTable, winograd_table)
ENGINE_ISA_TABLE(Conv2dWeightsTable, winograd_weights_table)
ENGINE_STORED_TABLE(Conv2dWeightsTable, winograd_weights_table)

}  // namespace engine::ops
