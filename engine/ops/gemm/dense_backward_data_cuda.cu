// dx [n, in] = dy W as a matrix product: dy with k contiguous, W with its columns.
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/dense_cuda.h"
#include "engine/ops/gemm/gemm_wgmma.h"

namespace engine::ops::cuda {

void dense_backward_data(KernelContext& context, const DenseBackwardData& o, GemmPlan plan) {
  const std::int64_t n = o.dx.shape[0], in = o.dx.shape[1], out = o.dy.shape[1];
  if (plan.tile == 0) plan = plan_matrix_product({n, in, out}, o.dx.dtype, context.products);
  with_storage(o.dx.dtype, [&]<class S>(S) {
    with_products<S>(context.products, [&](auto products) {
      launch_matrix_product<products(), true, false>(
          context, plan,
          MatrixOperands<S, S>{
              .name = "dense_backward_data",
              .m = n,
              .n = in,
              .k = out,
              .a = o.dy.as<S>(),
              .a_pitch = out,
              .b = o.weight.as<S>(),
              .b_pitch = in,
              .store = MatrixStore<S>::of(o.dx.as<S>(), in, o.write == Write::kAdd)});
    });
  });
}

}  // namespace engine::ops::cuda
