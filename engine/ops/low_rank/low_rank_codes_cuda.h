// PowerSGD on a CUDA device. low_rank_codes.h describes and low_rank_codes.cc checks the operands.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/low_rank/low_rank_operands.h"

namespace engine::ops {

// Of a block of threads: elements of a part; and rows of a result by columns of a factor.
inline constexpr std::int64_t kLowRankElements = 1024, kLowRankRows = 64, kLowRankColumns = 4;

namespace cuda {

void pack_low_rank(KernelContext& context, const LowRankTable& table,
                   const LowRankOperands& operands);
void project_low_rank(KernelContext& context, const LowRankTable& table,
                      const LowRankOperands& operands);
void expand_low_rank(KernelContext& context, const LowRankTable& table,
                     const LowRankOperands& operands);

}  // namespace cuda
}  // namespace engine::ops
