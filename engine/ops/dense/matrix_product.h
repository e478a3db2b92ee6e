// The products of the dense layer: plain matrices, aligned or not. Included by .cu files only.
#pragma once

#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/gemm/gemm_launch.h"
#include "engine/ops/gemm/gemm_matrix.h"

namespace engine::ops::cuda {

// A product of plain matrices for the dense layer: m, n, k, and the operands' pitches.
template <class S, class T>
struct MatrixOperands {
  const char* name;  // name of the kernel for error texts
  std::int64_t m, n, k;
  const S* a;
  std::int64_t a_pitch;
  const S* b;
  std::int64_t b_pitch;
  MatrixStore<T> store;
};

// Runs the product, with one kernel for operands that are both aligned to 16 bytes, and another for
// all others. Without a plan (tile 0) plan_on_device() makes one for the former: both have the same
// block sizes, and the operands' addresses must not affect the bits.
template <Products kProducts, bool kByDepthA, bool kByDepthB, class S, class T>
void launch_matrix_product(KernelContext& context, const GemmPlan& given,
                           const MatrixOperands<S, T>& x) {
  using Aligned = MatrixProduct<S, kByDepthA, kByDepthB, T, true>;
  const GemmPlan plan =
      given.tile != 0 ? given
                      : plan_on_device({x.m, x.n, x.k}, GemmKind(DTypeOf<S>::value, kProducts),
                                       residents_of<kProducts, GemmGroup<Aligned>>());
  const auto start = [&](auto aligned) {
    using Product = MatrixProduct<S, kByDepthA, kByDepthB, T, aligned()>;
    const Product product{.name = x.name,
                          .m = x.m,
                          .n = x.n,
                          .k = x.k,
                          .a = Product::LoaderA::of(x.a, x.m, x.a_pitch),
                          .b = Product::LoaderB::of(x.b, x.n, x.b_pitch),
                          .store = x.store};
    launch_gemm<kProducts>(context, plan, product);
  };
  if (alignment_of(x.a, x.a_pitch) == 16 && alignment_of(x.b, x.b_pitch) == 16)
    start(std::true_type{});
  else
    start(std::false_type{});
}

}  // namespace engine::ops::cuda
