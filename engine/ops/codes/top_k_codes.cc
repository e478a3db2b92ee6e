// Checks and dispatches top-k sums on a CUDA device.
#include "engine/ops/codes/top_k_codes.h"

#include <limits>
#include <string>
#include <string_view>

#include "engine/ops/codes/top_k_codes_cuda.h"
#include "engine/ops/codes/top_k_entry.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

// These kernels have no version for the CPU, where TopKSum has one.
template <class Cuda>
void select_on_device(std::string_view kernel, const KernelContext& context,
                      const TensorView& values, std::int64_t sent, std::size_t scratch, Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_dtype(kernel, "values", values, wide_dtype(values.dtype));
  check_context(kernel, context, scratch);
  require(values.count() <= std::numeric_limits<TopKIndex>::max(),
          "top-k counts elements in 32 bits");
  require(sent >= 0 && sent <= values.count(), "top-k sends at most all elements");
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

}  // namespace

std::size_t top_k_scratch_bytes() { return kTopKScratchBytes; }

void take_top_k(KernelContext& context, const TopKOperands& operands, std::int64_t sent,
                std::byte* code) {
  constexpr std::string_view kName = "take_top_k";
  check_dtype(kName, "error", operands.error, operands.values.dtype);
  check_count(kName, "error", operands.error, operands.values.count());
  select_on_device(kName, context, operands.values, sent, top_k_scratch_bytes(),
                   [&] { cuda::take_top_k(context, operands, sent, code); });
}

void add_top_k(KernelContext& context, std::int64_t sent, const RankCodes& of_ranks,
               TensorView values) {
  select_on_device("add_top_k", context, values, sent, 0,
                   [&] { cuda::add_top_k(context, sent, of_ranks, values); });
}

}  // namespace engine::ops
