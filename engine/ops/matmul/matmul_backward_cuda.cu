// da = scale * dy B^T and db = scale * A^T dy for each pair of matrices, as forward
// (matmul_forward_cuda.cu).
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/float64/product_f64_cuda.h"
#include "engine/ops/matmul/matmul_launch.h"

namespace engine::ops::cuda {
namespace {

template <class T>
void launch_db(KernelContext& context, const MatmulSizes& s, const MatmulBackward& o) {
  const bool add = o.db_write == Write::kAdd;
  const T *a = o.a.as<T>(), *dy = o.dy.as<T>();
  const char* name = "matmul_backward_b";
  if (o.transpose_b)
    launch_products<false, false, T>(
        context, {name, {s.products, s.n, s.k, s.m}, dy, a, o.db.as<T>(), add, o.scale});
  else
    launch_products<false, false, T>(
        context, {name, {s.products, s.k, s.n, s.m}, a, dy, o.db.as<T>(), add, o.scale});
}

void backward_f64(KernelContext& context, const MatmulSizes& s, const MatmulBackward& o) {
  const bool swap = o.transpose_b;
  if (o.da)
    multiply_f64(context, {.name = "matmul_backward_a",
                           .m = s.m,
                           .n = s.k,
                           .k = s.n,
                           .matrices = s.products,
                           .a = {o.dy, true},
                           .b = {o.b, !swap},
                           .c = o.da,
                           .write = o.da_write,
                           .scale = o.scale});
  if (o.db)
    multiply_f64(context, {.name = "matmul_backward_b",
                           .m = swap ? s.n : s.k,
                           .n = swap ? s.k : s.n,
                           .k = s.m,
                           .matrices = s.products,
                           .a = {swap ? o.dy : o.a, false},
                           .b = {swap ? o.a : o.dy, false},
                           .c = o.db,
                           .write = o.db_write,
                           .scale = o.scale});
}

}  // namespace

void matmul_backward(KernelContext& context, const MatmulSizes& s, const MatmulBackward& o) {
  if (s.products == 0) return;
  if (o.a.dtype == DType::kF64) return backward_f64(context, s, o);
  with_storage(o.a.dtype, [&]<class T>(T) {
    const BatchOperands<T> x{
        "matmul_backward_a", {s.products, s.m, s.k, s.n}, o.dy.as<T>(), o.b.as<T>(),
        o.da.as<T>(),        o.da_write == Write::kAdd,   o.scale};
    if (o.da)
      o.transpose_b ? launch_products<true, false>(context, x)
                    : launch_products<true, true>(context, x);
    if (o.db) launch_db<T>(context, s, o);
  });
}

}  // namespace engine::ops::cuda
