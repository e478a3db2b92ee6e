// Sums, differences, products and quotients of two tensors that are expanded to a common shape, as
// NumPy does. All have one rank; each extent of a and of b is that of y, or 1.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

enum class BinaryKind : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide };

struct BroadcastForward {
  BinaryKind kind;
  TensorView a, b, y;
};

struct BroadcastBackward {
  BinaryKind kind;
  TensorView a, b, dy;
  TensorView da{}, db{};  // absent if not needed
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};

void broadcast_forward(KernelContext& context, const BroadcastForward& o);  // y may be a or b

// Gradients are sums over the expanded dimensions, in an order that depends only on the shapes. a
// and b are read for products and quotients alone. da is written before db; only in a sum may
// either be dy.
void broadcast_backward(KernelContext& context, const BroadcastBackward& o);

}  // namespace engine::ops
