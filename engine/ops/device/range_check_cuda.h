// Checks that ids in device memory, such as labels and tokens, are in a range. Bound by bytes; one
// launch of one block.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// If one of ids[0, count) is outside [0, limit) and not `also`, writes the lowest such index to
// context.fault, unless that holds an earlier fault. Does nothing if the context has no fault.
void check_range(KernelContext& context, const std::int32_t* ids, std::int64_t count,
                 std::int64_t limit, std::int32_t also = 0);

}  // namespace engine::ops::cuda
