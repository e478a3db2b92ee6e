// Checks and dispatches sums of quantized codes on a CUDA device.
#include "engine/ops/codes/quantized_codes.h"

#include <string>

#include "engine/ops/codes/quantized_codes_cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

// These kernels have no version for the CPU, where QuantizedCode has one.
template <class Cuda>
void on_device(std::string_view kernel, const KernelContext& context, const QuantizedSpan& span,
               Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context, 0);
  require(span.bits == 8 || span.bits == 4, "quantized elements have 8 or 4 bits");
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

void check_number(std::string_view kernel, std::string_view operand, const TensorView& view) {
  check_dtype(kernel, operand, view, wide_dtype(view.dtype));
}

void check_alike(std::string_view kernel, std::string_view operand, const TensorView& view,
                 const TensorView& values) {
  check_dtype(kernel, operand, view, values.dtype);
  check_count(kernel, operand, view, values.count());
}

}  // namespace

void quantize(KernelContext& context, const QuantizedSpan& span, double decay, TensorView values,
              TensorView error, TensorView rest, std::byte* codes) {
  check_number("quantize", "values", values);
  check_alike("quantize", "error", error, values);
  check_alike("quantize", "rest", rest, values);
  on_device("quantize", context, span,
            [&] { cuda::quantize(context, span, decay, values, error, rest, codes); });
}

void quantize_sum(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                  TensorView rest, std::byte* codes) {
  check_number("quantize_sum", "rest", rest);
  on_device("quantize_sum", context, span,
            [&] { cuda::quantize_sum(context, span, of_ranks, rest, codes); });
}

void add_quantized(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                   TensorView values) {
  check_number("add_quantized", "values", values);
  on_device("add_quantized", context, span,
            [&] { cuda::add_quantized(context, span, of_ranks, values); });
}

}  // namespace engine::ops
