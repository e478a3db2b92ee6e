// Checks and dispatches codes of bf16 on a CUDA device.
#include "engine/ops/codes/bf16_codes.h"

#include <string>

#include "engine/ops/codes/bf16_codes_cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

// These kernels have no version for the CPU, where Bf16Sum has one.
template <class Cuda>
void code_on_device(std::string_view kernel, const KernelContext& context, const TensorView& values,
                    const TensorView& codes, Cuda cuda) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_dtype(kernel, "values", values, wide_dtype(values.dtype));
  check_dtype(kernel, "codes", codes, DType::kBF16);
  check_count(kernel, "codes", codes, values.count());
  check_context(kernel, context, 0);
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

}  // namespace

void encode_bf16(KernelContext& context, TensorView values, TensorView error, TensorView codes) {
  check_dtype("encode_bf16", "error", error, values.dtype);
  check_count("encode_bf16", "error", error, values.count());
  code_on_device("encode_bf16", context, values, codes,
                 [&] { cuda::encode_bf16(context, values, error, codes); });
}

void decode_bf16(KernelContext& context, TensorView codes, TensorView values) {
  code_on_device("decode_bf16", context, values, codes,
                 [&] { cuda::decode_bf16(context, codes, values); });
}

}  // namespace engine::ops
