// Convolution forward in NHWC as a matrix product [n oh ow, kh kw in] x [kh kw in, out] whose left
// operand is never stored: each chunk of a tile is read from the position of its tap in x
// ("implicit GEMM": Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). Bound
// by flops, but by bytes for few channels and for 1 x 1 kernels.
#include "engine/ops/conv2d/conv2d_cuda.h"

#include "engine/ops/conv2d/conv2d_loaders.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/gemm_launch.h"

namespace engine::ops::cuda {

void conv2d_forward(KernelContext& context, const Conv2dForward& o, GemmPlan plan) {
  const Conv2dGeometry& g = o.geometry;
  if (o.x.dtype == DType::kF64)
    return conv2d_forward_f64(context, conv_f64(g, o.x.shape[0]), o.x.as<double>(),
                              o.weight.as<double>(), o.bias.as<double>(), o.y.as<double>());
  const GemmKind kind(o.x.dtype, context.products);
  const Window window = forward_window(g, o.x.shape[0], kind.stage_depth);
  const GemmShape shape{window.places, g.out_channels, window.depth};
  with_storage(o.x.dtype, [&]<class S>(S) {
    using Product = GemmProduct<PlaceLoader<S, 1>, MatrixLoader<S, false>, MatrixStore<S>>;
    const Product product{
        .name = "conv2d_forward",
        .m = shape.m,
        .n = shape.n,
        .k = shape.k,
        .a = PlaceLoader<S, 1>::of(window, o.x.as<S>(), in_chunks(o.x.as<S>(), g.in_channels)),
        .b = MatrixLoader<S, false>::of(o.weight.as<S>(), g.out_channels, g.out_channels),
        .store = MatrixStore<S>::of(o.y.as<S>(), g.out_channels, false, o.bias.as<float>())};
    with_products<S>(context.products, [&](auto products) {
      if (plan.tile == 0)
        plan = plan_on_device(shape, kind, residents_of<products(), GemmGroup<Product>>(), 1);
      launch_gemm<products()>(context, plan, product);
    });
  });
}

}  // namespace engine::ops::cuda
