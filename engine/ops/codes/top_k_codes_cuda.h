// Top-k sums on a CUDA device. top_k_codes.h describes and top_k_codes.cc checks the operands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/codes/top_k_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

inline constexpr std::int64_t kTopKChunks = 1024;  // parts of the elements, at most
inline constexpr int kTopKDigits = 16;             // of the digits by which the limit is found
// For each chunk its numbers of elements by digit, and what it sends; and the limit.
inline constexpr std::size_t kTopKScratchBytes =
    static_cast<std::size_t>(kTopKChunks) * (kTopKDigits + 2) * sizeof(std::uint32_t) + 64;

namespace cuda {

void take_top_k(KernelContext& context, const TopKOperands& operands, std::int64_t sent,
                std::byte* code);
void add_top_k(KernelContext& context, std::int64_t sent, const RankCodes& of_ranks,
               TensorView values);

}  // namespace cuda
}  // namespace engine::ops
