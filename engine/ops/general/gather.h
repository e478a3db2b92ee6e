// Entries of an axis in any order, also repeated ones: y[o, p, i] = x[o, entries[p], i]. The
// gradient of an entry is the sum over its positions, in their order. Bound by bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// The entries that are gathered, also in the order of their gradients.
struct GatherEntries {
  std::vector<std::int32_t> entries;    // of x, for each position of y
  std::vector<std::int32_t> positions;  // of y, ordered by entry and, for each, ascending

  explicit GatherEntries(std::span<const std::int64_t> indices);
};

struct GatherForward {
  int axis;
  const GatherEntries& chosen;
  TensorView x, y;
};

struct GatherBackward {
  int axis;
  const GatherEntries& chosen;
  TensorView dy, dx;
  Write write = Write::kOverwrite;
};

void gather_forward(KernelContext& context, const GatherForward& o);
void gather_backward(KernelContext& context, const GatherBackward& o);

}  // namespace engine::ops
