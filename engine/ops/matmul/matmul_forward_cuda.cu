// y = scale * A B for each pair of matrices, as batched products of gemm_main_loop.h with a scaling
// epilogue. Bound by flops for large matrices, by bytes for heads of attention.
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/float64/product_f64_cuda.h"
#include "engine/ops/matmul/matmul_launch.h"

namespace engine::ops::cuda {

void matmul_forward(KernelContext& context, const MatmulSizes& s, const MatmulForward& o) {
  if (s.products == 0) return;
  if (o.a.dtype == DType::kF64)
    return multiply_f64(context, {.name = "matmul_forward",
                                  .m = s.m,
                                  .n = s.n,
                                  .k = s.k,
                                  .matrices = s.products,
                                  .a = {o.a, true},
                                  .b = {o.b, o.transpose_b},
                                  .c = o.y,
                                  .scale = o.scale});
  with_storage(o.a.dtype, [&]<class T>(T) {
    const BatchOperands<T> x{"matmul_forward", s,     o.a.as<T>(), o.b.as<T>(),
                             o.y.as<T>(),      false, o.scale};
    o.transpose_b ? launch_products<true, true>(context, x)
                  : launch_products<true, false>(context, x);
  });
}

}  // namespace engine::ops::cuda
