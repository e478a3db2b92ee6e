// Sums, differences, products, quotients and comparisons of two tensors that are expanded to a
// common shape, as NumPy does, and choices between two by a third one. All have one rank; each
// extent of an operand is that of y, or 1.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops {

void broadcast_forward(KernelContext& context, const BroadcastForward& o);  // y may be a or b

// Gradients of all kinds but comparisons are sums over the expanded dimensions, in an order that
// depends only on the shapes. a and b are read for products and quotients alone. da is written
// before db; only in a sum may either be dy.
void broadcast_backward(KernelContext& context, const BroadcastBackward& o);

// y = a where the condition is not 0 (NaN is not), else b. Elements that are not chosen may be
// infinite or NaN, also in backward.
void choose_forward(KernelContext& context, const ChooseForward& o);
void choose_backward(KernelContext& context, const ChooseBackward& o);

}  // namespace engine::ops
