// Checks and dispatches PowerSGD's sums on a CUDA device.
#include "engine/ops/low_rank/low_rank_codes.h"

#include <limits>
#include <string>
#include <string_view>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/low_rank/low_rank_codes_cuda.h"

namespace engine::ops {
namespace {

std::int64_t tiles_of(std::int64_t count, std::int64_t each) { return (count + each - 1) / each; }

// These kernels have no version for the CPU, where PowerSgdSum has one.
template <class Cuda>
void sum_on_device(std::string_view kernel, const KernelContext& context, const LowRankTable& table,
                   const LowRankOperands& operands, Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context, 0);
  const TensorView& gradients = operands.gradients;
  check_dtype(kernel, "gradients", gradients, wide_dtype(gradients.dtype));
  check_dtype(kernel, "error", operands.error, gradients.dtype);
  check_count(kernel, "error", operands.error, gradients.count());
  if (table.count > 0) check_dtype(kernel, "packed", operands.packed, gradients.dtype);
  if (table.matrices > 0) check_dtype(kernel, "factors", operands.factors, gradients.dtype);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  require(table.element_tiles <= kMost && table.row_tiles <= kMost && table.column_tiles <= kMost,
          "PowerSGD: too many elements for a kernel");
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

}  // namespace

LowRankTable number_tiles(std::span<LowRankPart> parts, int matrices, int rank) {
  LowRankTable table{.matrices = matrices, .count = static_cast<int>(parts.size()), .rank = rank};
  const std::int64_t groups = tiles_of(rank, kLowRankColumns);
  for (LowRankPart& part : parts) {
    part.element_tile = table.element_tiles;
    part.row_tile = table.row_tiles;
    part.column_tile = table.column_tiles;
    table.element_tiles += tiles_of(part.rows * part.columns, kLowRankElements);
    if (matrices-- <= 0) continue;
    table.row_tiles += tiles_of(part.rows, kLowRankRows) * groups;
    table.column_tiles += tiles_of(part.columns, kLowRankRows) * groups;
  }
  return table;
}

void pack_low_rank(KernelContext& context, const LowRankTable& table,
                   const LowRankOperands& operands) {
  sum_on_device("pack_low_rank", context, table, operands,
                [&] { cuda::pack_low_rank(context, table, operands); });
}

void project_low_rank(KernelContext& context, const LowRankTable& table,
                      const LowRankOperands& operands) {
  sum_on_device("project_low_rank", context, table, operands,
                [&] { cuda::project_low_rank(context, table, operands); });
}

void expand_low_rank(KernelContext& context, const LowRankTable& table,
                     const LowRankOperands& operands) {
  sum_on_device("expand_low_rank", context, table, operands,
                [&] { cuda::expand_low_rank(context, table, operands); });
}

}  // namespace engine::ops
