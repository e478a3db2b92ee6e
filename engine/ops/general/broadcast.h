// Sums, differences, products and quotients of two tensors that are expanded to a common shape, as
// NumPy does. All have one rank; each extent of a and of b is that of y, or 1.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

void broadcast_forward(KernelContext& context, const BroadcastForward& o);  // y may be a or b

// Gradients are sums over the expanded dimensions, in an order that depends only on the shapes. a
// and b are read for products and quotients alone. da is written before db; only in a sum may
// either be dy.
void broadcast_backward(KernelContext& context, const BroadcastBackward& o);

}  // namespace engine::ops
