// Convolution forward in NHWC as a matrix product [n oh ow, kh kw in] x [kh kw in, out] whose left
// operand is never written down: each piece of a tile is fetched from where its tap lies in x
// ("implicit GEMM": Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). Bound:
// flops, but bytes with few channels and with 1 x 1 kernels.
#include "engine/ops/conv2d/conv2d_cuda.h"

#include "engine/ops/conv2d/conv2d_dispatch.h"

namespace engine::ops::cuda {
namespace {

template <class S>
struct ForwardTask {
  Window window;
  const S *x, *weight;
  bool vector_x, vector_weight;
  int column_tiles;
  Results<S> y;
};

template <class S, class Math>
__global__ void __launch_bounds__(Math::kThreads, Math::kResident)
    forward_kernel(const ForwardTask<S> task) {
  using Storage = typename Math::Storage;
  auto* shared = &block_shared<Storage>();
  const int row_tile = static_cast<int>(blockIdx.x) / task.column_tiles,
            column_tile = static_cast<int>(blockIdx.x) - row_tile * task.column_tiles;
  const int first_row = row_tile * Math::Shape::kM, first_column = column_tile * Math::Shape::kN;
  const PlaceRows<S, typename Math::A::Share> rows(task.window, task.x, task.vector_x, first_row);
  const MatrixRows<S, typename Math::B::Share> columns(task.weight, task.y.columns,
                                                       task.vector_weight, first_column);
  Math math;
  accumulate(math, rows, columns, 0, task.window.depth, shared);
  math.finish(reinterpret_cast<float*>(shared), [&](int row, int column, const auto& values) {
    if (first_row + row < task.window.places)
      task.y.put(std::int64_t{first_row + row} * task.y.columns, first_column + column, values);
  });
}

}  // namespace

void conv2d_forward(KernelContext& context, const Conv2dGeometry& g, TensorView x,
                    TensorView weight, TensorView bias, TensorView y) {
  const std::int64_t n = x.shape[0], places = n * g.out_h() * g.out_w();
  if (places == 0) return;
  const Window window = forward_window(g, n);
  const ProductPlan plan = plan_product({places, g.out_channels, window.depth}, 1,
                                        ProductKind(x.dtype, context.products));
  with_product<void, Lines::kAlongDepth, Lines::kAcrossDepth>(
      x.dtype, context.products, plan.tile, [&]<class S, class Math>(S, Math*) {
        const int column_tiles = static_cast<int>(divide_up(g.out_channels, Math::Shape::kN));
        const ForwardTask<S> task{window,
                                  x.as<S>(),
                                  weight.as<S>(),
                                  in_pieces(x.as<S>(), g.in_channels),
                                  in_pieces(weight.as<S>(), g.out_channels),
                                  column_tiles,
                                  {y.as<S>(), bias.as<float>(), static_cast<int>(g.out_channels),
                                   false, in_pieces(y.as<S>(), g.out_channels)}};
        const auto blocks =
            static_cast<unsigned>(divide_up(places, Math::Shape::kM) * column_tiles);
        launch("conv2d_forward", forward_kernel<S, Math>, {blocks}, Math::kThreads,
               Math::kSharedBytes, context.stream, task);
      });
}

}  // namespace engine::ops::cuda
