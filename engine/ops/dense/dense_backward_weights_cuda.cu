// dweight [out, in] = dy^T x as a matrix product over the rows (split where there are many), and
// dbias as sums of dy's columns.
#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/dense/matrix_product.h"
#include "engine/ops/dense/padded_rows_cuda.h"
#include "engine/ops/device/column_sums_cuda.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/float64/product_f64_cuda.h"

namespace engine::ops::cuda {

void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o,
                            const GemmPlan& plan) {
  const std::int64_t n = o.x.shape[0], in = o.x.shape[1], out = o.dy.shape[1];
  if (o.dbias) column_sums(context, o.dy.data, o.dy.dtype, n, out, o.dbias.data, o.write);
  if (o.x.dtype == DType::kF64)
    return multiply_f64(context, {.name = "dense_backward_weights",
                                  .m = out,
                                  .n = in,
                                  .k = n,
                                  .a = {o.dy, false},
                                  .b = {o.x, false},
                                  .c = o.dweight,
                                  .write = o.write});
  const PaddedRows dy = padded_rows(context, o.dy);
  KernelContext rest = context;
  rest.scratch = dy.scratch_left;
  with_storage(o.x.dtype, [&]<class S>(S) {
    with_products<S>(context.products, [&](auto products) {
      launch_matrix_product<products(), false, false>(
          rest, plan,
          MatrixOperands<S, float>{
              .name = "dense_backward_weights",
              .m = out,
              .n = in,
              .k = n,
              .a = static_cast<const S*>(dy.data),
              .a_pitch = dy.pitch,
              .b = o.x.as<S>(),
              .b_pitch = in,
              .store = MatrixStore<float>::of(o.dweight.as<float>(), in, o.write == Write::kAdd)});
    });
  });
}

}  // namespace engine::ops::cuda
