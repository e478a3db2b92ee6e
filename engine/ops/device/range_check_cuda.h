// Ids in device memory that must lie in a range, such as labels and tokens. Bound: bytes; one
// launch of one block.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// Where one of ids[0, count) is outside [0, limit), context.fault is written with the lowest such
// place, unless it holds an earlier fault. Nothing happens where the context has no fault.
void check_range(KernelContext& context, const std::int32_t* ids, std::int64_t count,
                 std::int64_t limit);

}  // namespace engine::ops::cuda
