// Multiplies one number of each row, a loss, its gradient or a target, by the weight of the row.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// rows[i] *= weights[i], which is first rounded to the type of the rows. weights [rows] of f64, in
// the memory of the context's device; rows of as many elements, f32 or f64.
void weigh_rows(KernelContext& context, TensorView weights, TensorView rows);

}  // namespace engine::ops
