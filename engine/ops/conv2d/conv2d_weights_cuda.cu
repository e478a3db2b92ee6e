// Gradients of convolution's weights and bias. dweight, viewed as [kh kw in, out], is a matrix
// product of gathered x and dy over all output pixels. It is small and the sum is long, so the
// pixels are split: a second pass adds the parts in order ("split K": CUTLASS documentation,
// "Efficient GEMM in CUDA", 2017). Bound by flops; the second pass and the bias by bytes.
#include <algorithm>

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_loaders.h"
#include "engine/ops/device/column_sums_cuda.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/gemm_launch.h"

namespace engine::ops::cuda {

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& g, std::int64_t n, DType dtype) {
  const std::int64_t pixels = n * g.out_h() * g.out_w();
  const std::int64_t weights =
      max_gemm_workspace_bytes({g.kernel_h * g.kernel_w * g.in_channels, g.out_channels, pixels},
                               gemm_stage_depth(size_of(dtype)), engine::cuda::max_processors());
  return std::max(static_cast<std::size_t>(weights),
                  column_sums_scratch_bytes(pixels, g.out_channels));
}

void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o,
                             GemmPlan plan) {
  const Conv2dGeometry& g = o.geometry;
  const GemmKind kind(o.x.dtype, context.products);
  const Window window = forward_window(g, o.x.shape[0], kind.stage_depth);
  const GemmShape shape{window.depth, g.out_channels, window.places};
  with_storage(o.x.dtype, [&]<class S>(S) {
    using Product = GemmProduct<TapLoader<S>, MatrixLoader<S, false>, MatrixStore<float>>;
    const Product product{
        .name = "conv2d_backward_weights",
        .m = shape.m,
        .n = shape.n,
        .k = shape.k,
        .a = TapLoader<S>::of(window, o.x.as<S>(), in_chunks(o.x.as<S>(), g.in_channels)),
        .b = MatrixLoader<S, false>::of(o.dy.as<S>(), g.out_channels, g.out_channels),
        .store =
            MatrixStore<float>::of(o.dweight.as<float>(), g.out_channels, o.write == Write::kAdd)};
    with_products<S>(context.products, [&](auto products) {
      if (plan.tile == 0)
        plan = plan_on_device(shape, kind, residents_of<products(), GemmGroup<Product>>());
      launch_gemm<products()>(context, plan, product);
    });
  });
  if (o.dbias)
    column_sums(context, o.dy.data, o.dy.dtype, window.places, g.out_channels, o.dbias.as<float>(),
                o.write);
}

}  // namespace engine::ops::cuda
