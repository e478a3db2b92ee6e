// Checks and dispatches GELU.
#include "engine/ops/elementwise/gelu.h"

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/gelu_cpu.h"
#include "engine/ops/elementwise/gelu_cuda.h"
#include "engine/ops/elementwise/gelu_reference.h"

namespace engine::ops {

void gelu_forward(KernelContext& context, TensorView x, GeluKind kind, TensorView y) {
  check_floating("gelu_forward", "x", x);
  check_like("gelu_forward", "y", y, x);
  check_context("gelu_forward", context);
  dispatch(
      context, x.dtype,
      [&] {
        context.threads->run(x.count(), [&](std::int64_t first, std::int64_t last, int) {
          reference::gelu_forward(x.as<double>() + first, last - first, kind,
                                  y.as<double>() + first);
        });
      },
      [&] {
        isa_table_of_gelu_table().forward(x.as<float>(), x.count(), kind == GeluKind::kTanh,
                                          y.as<float>(), *context.threads);
      },
      [&] { cuda::gelu_forward(context, x, kind, y); });
}

void gelu_backward(KernelContext& context, TensorView x, TensorView dy, GeluKind kind,
                   TensorView dx, Write write) {
  check_floating("gelu_backward", "x", x);
  check_like("gelu_backward", "dy", dy, x);
  check_like("gelu_backward", "dx", dx, x);
  check_context("gelu_backward", context);
  dispatch(
      context, x.dtype,
      [&] {
        context.threads->run(x.count(), [&](std::int64_t first, std::int64_t last, int) {
          reference::gelu_backward(x.as<double>() + first, dy.as<double>() + first, last - first,
                                   kind, dx.as<double>() + first, write);
        });
      },
      [&] {
        isa_table_of_gelu_table().backward(x.as<float>(), dy.as<float>(), x.count(),
                                           kind == GeluKind::kTanh, dx.as<float>(),
                                           write == Write::kAdd, *context.threads);
      },
      [&] { cuda::gelu_backward(context, x, dy, kind, dx, write); });
}

}  // namespace engine::ops
