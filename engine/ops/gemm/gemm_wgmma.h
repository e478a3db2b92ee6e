// Products of bf16 and f16 matrices with the warpgroup instructions of sm_90a, for tiles of 128.
// Included by .cu files only. Off unless allow_warpgroup_products(true) was called: IT HAS NOT RUN
// ON A DEVICE YET, only on the CPU's stand-in.
#pragma once

#include "engine/ops/gemm/dense_cuda.h"
#include "engine/ops/gemm/gemm_launch.h"
#include "engine/ops/gemm/gemm_matrix.h"

namespace engine::ops::cuda {

// As launch_gemm() with a plan of tile 128 whose split_depth is a multiple of 64. Defined for bf16
// and f16 and the three pairs of layouts of the dense layer.
template <class S, bool kByDepthA, bool kByDepthB, class T>
void launch_wgmma(KernelContext& context, const GemmPlan& plan,
                  const MatrixProduct<S, kByDepthA, kByDepthB, T>& product);

// Whichever of the two the plan says.
template <Products kProducts, class S, bool kByDepthA, bool kByDepthB, class T>
void launch_matrix_product(KernelContext& context, const GemmPlan& plan,
                           const MatrixProduct<S, kByDepthA, kByDepthB, T>& product) {
  if constexpr (sizeof(S) == 2) {
    if (plan.warpgroup) return launch_wgmma(context, plan, product);
  }
  launch_gemm<kProducts>(context, plan, product);
}

}  // namespace engine::ops::cuda
