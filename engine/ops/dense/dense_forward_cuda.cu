// y [n, out] = x W^T + b as a matrix product with k contiguous in both operands; its epilogue
// applies bias and ReLU.
#include <algorithm>

#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/dense/matrix_product.h"
#include "engine/ops/dense/padded_rows_cuda.h"
#include "engine/ops/device/column_sums_cuda.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/float64/product_f64_cuda.h"

namespace engine::ops::cuda {

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype) {
  if (dtype == DType::kF64) return column_sums_scratch_bytes(n, out, dtype);
  const int depth = gemm_stage_depth(size_of(dtype)), processors = engine::cuda::max_processors();
  const std::int64_t most = std::max({max_gemm_workspace_bytes({n, out, in}, depth, processors),
                                      max_gemm_workspace_bytes({n, in, out}, depth, processors),
                                      max_gemm_workspace_bytes({out, in, n}, depth, processors)});
  return std::max(padded_rows_bytes(n, out, dtype) + static_cast<std::size_t>(most),
                  column_sums_scratch_bytes(n, out));
}

void dense_forward(KernelContext& context, const DenseForward& o, const GemmPlan& plan) {
  const std::int64_t n = o.x.shape[0], in = o.x.shape[1], out = o.y.shape[1];
  if (o.x.dtype == DType::kF64)
    return multiply_f64(context, {.name = "dense_forward",
                                  .m = n,
                                  .n = out,
                                  .k = in,
                                  .a = {o.x, true},
                                  .b = {o.weight, true},
                                  .c = o.y,
                                  .write = o.write,
                                  .bias = o.bias,
                                  .relu = o.relu});
  with_storage(o.x.dtype, [&]<class S>(S) {
    with_products<S>(context.products, [&](auto products) {
      launch_matrix_product<products(), true, true>(
          context, plan,
          MatrixOperands<S, S>{.name = "dense_forward",
                               .m = n,
                               .n = out,
                               .k = in,
                               .a = o.x.as<S>(),
                               .a_pitch = in,
                               .b = o.weight.as<S>(),
                               .b_pitch = in,
                               .store = MatrixStore<S>::of(o.y.as<S>(), out, o.write == Write::kAdd,
                                                           o.bias.as<float>(), o.relu)});
    });
  });
}

}  // namespace engine::ops::cuda
