// dx [n, in] = dy W as a matrix product: dy with k contiguous, W with its columns.
#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/dense/matrix_product.h"
#include "engine/ops/dense/padded_rows_cuda.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/float64/product_f64_cuda.h"

namespace engine::ops::cuda {

void dense_backward_data(KernelContext& context, const DenseBackwardData& o, const GemmPlan& plan) {
  const std::int64_t n = o.dx.shape[0], in = o.dx.shape[1], out = o.dy.shape[1];
  if (o.dx.dtype == DType::kF64)
    return multiply_f64(context, {.name = "dense_backward_data",
                                  .m = n,
                                  .n = in,
                                  .k = out,
                                  .a = {o.dy, true},
                                  .b = {o.weight, false},
                                  .c = o.dx,
                                  .write = o.write});
  const PaddedRows dy = padded_rows(context, o.dy);
  KernelContext rest = context;
  rest.scratch = dy.scratch_left;
  with_storage(o.dx.dtype, [&]<class S>(S) {
    with_products<S>(context.products, [&](auto products) {
      launch_matrix_product<products(), true, false>(
          rest, plan,
          MatrixOperands<S, S>{
              .name = "dense_backward_data",
              .m = n,
              .n = in,
              .k = out,
              .a = static_cast<const S*>(dy.data),
              .a_pitch = dy.pitch,
              .b = o.weight.as<S>(),
              .b_pitch = in,
              .store = MatrixStore<S>::of(o.dx.as<S>(), in, o.write == Write::kAdd)});
    });
  });
}

}  // namespace engine::ops::cuda
