// Checks and dispatches sums of sparse codes on a CUDA device.
#include "engine/ops/codes/sparse_codes.h"

#include <string>
#include <string_view>

#include "engine/ops/codes/sparse_block.h"
#include "engine/ops/codes/sparse_codes_cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

// These kernels have no version for the CPU, where SparseCode has one.
template <class Cuda>
void on_device(std::string_view kernel, const KernelContext& context, const SparseSpan& span,
               Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context, 0);
  require(span.bits == 8 || span.bits == 4 || span.bits == 2, "sparse values have 8, 4 or 2 bits");
  require(span.kept >= 1 && span.kept <= kSparseBlock,
          "a block sends between one and all of its elements");
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

}  // namespace

void select_largest(KernelContext& context, const SparseSpan& span, const SparseOperands& operands,
                    std::byte* codes) {
  constexpr std::string_view kName = "select_largest";
  const TensorView& values = operands.values;
  check_dtype(kName, "values", values, wide_dtype(values.dtype));
  const auto check_alike = [&](std::string_view operand, const TensorView& view) {
    check_dtype(kName, operand, view, values.dtype);
    check_count(kName, operand, view, values.count());
  };
  check_alike("error", operands.error);
  check_alike("rest", operands.rest);
  if (operands.velocity) check_alike("velocity", operands.velocity);
  on_device(kName, context, span, [&] { cuda::select_largest(context, span, operands, codes); });
}

void add_selected(KernelContext& context, const SparseSpan& span, const RankCodes& of_ranks,
                  TensorView values) {
  check_dtype("add_selected", "values", values, wide_dtype(values.dtype));
  on_device("add_selected", context, span,
            [&] { cuda::add_selected(context, span, of_ranks, values); });
}

}  // namespace engine::ops
