// dweight [out, in] = dy^T x as a matrix product over the rows (split where there are many), and
// dbias as sums of dy's columns.
#include "engine/ops/device/column_sums_cuda.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/dense_cuda.h"
#include "engine/ops/gemm/gemm_wgmma.h"

namespace engine::ops::cuda {

void dense_backward_weights(KernelContext& context, TensorView x, TensorView dy, TensorView dweight,
                            TensorView dbias, Write write, GemmPlan plan) {
  const std::int64_t n = x.shape[0], in = x.shape[1], out = dy.shape[1];
  if (dbias) column_sums(context, dy.data, dy.dtype, n, out, dbias.as<float>(), write);
  if (plan.tile == 0) plan = plan_matrix_product({out, in, n}, x.dtype, context.products);
  with_storage(x.dtype, [&]<class S>(S) {
    with_products<S>(context.products, [&](auto products) {
      launch_matrix_product<products()>(
          context, plan,
          MatrixProduct<S, false, false, float>{
              .name = "dense_backward_weights",
              .m = out,
              .n = in,
              .k = n,
              .a = MatrixLoader<S, false>::of(dy.as<S>(), out, out),
              .b = MatrixLoader<S, false>::of(x.as<S>(), in, in),
              .store = MatrixStore<float>::of(dweight.as<float>(), in, write == Write::kAdd)});
    });
  });
}

}  // namespace engine::ops::cuda
