// Gradients of convolution's weights and bias. dweight, seen as [kh kw in, out], is the sum over
// all output pixels of gathered x times dy. It is small and the sum long, so the pixels are split:
// every block adds up a tile of dweight over one part of them into a workspace, and a second pass
// adds the parts in their order, the same in every run ("split K": CUTLASS documentation,
// "Efficient GEMM in CUDA", 2017). Bound: flops; the second pass and the bias: bytes.
#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_dispatch.h"
#include "engine/ops/device/column_sums_cuda.h"

namespace engine::ops::cuda {
namespace {

template <class S>
struct WeightsTask {
  Window window;
  const S *x, *dy;
  bool vector_x, vector_dy;
  int column_tiles, part;    // pixels of a part, a multiple of every kDepth
  std::int64_t part_offset;  // floats from part to part of the result
  Results<float> dweight;
};

template <class S, class Math>
__global__ void __launch_bounds__(Math::kThreads, Math::kResident)
    weights_kernel(const WeightsTask<S> task) {
  using Storage = typename Math::Storage;
  auto* shared = &block_shared<Storage>();
  const int row_tile = static_cast<int>(blockIdx.x) / task.column_tiles,
            column_tile = static_cast<int>(blockIdx.x) - row_tile * task.column_tiles;
  const int first_row = row_tile * Math::Shape::kM, first_column = column_tile * Math::Shape::kN;
  const int first = static_cast<int>(blockIdx.z) * task.part;
  const int last = task.window.places - first < task.part ? task.window.places : first + task.part;
  const TapLines<S, typename Math::A::Share> rows(task.window, task.x, task.vector_x, first_row);
  const MatrixRows<S, typename Math::B::Share> columns(task.dy, task.dweight.columns,
                                                       task.vector_dy, first_column);
  Math math;
  accumulate(math, rows, columns, first, last, shared);
  math.finish(reinterpret_cast<float*>(shared), [&](int row, int column, const auto& values) {
    if (first_row + row < task.window.depth)
      task.dweight.put(
          blockIdx.z * task.part_offset + std::int64_t{first_row + row} * task.dweight.columns,
          first_column + column, values);
  });
}

constexpr int kSumThreads = 256;

// to[i] (+)= sum of parts[p * count + i] over p, in order.
__global__ void __launch_bounds__(kSumThreads)
    add_parts_kernel(const float* parts, int part_count, std::int64_t count, bool add, float* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kSumThreads) {
    float sum = 0;
#pragma unroll 8
    for (int p = 0; p < part_count; ++p) sum += parts[p * count + i];
    to[i] = add ? to[i] + sum : sum;
  }
}

std::int64_t weight_count(const Conv2dGeometry& g) {
  return g.kernel_h * g.kernel_w * g.in_channels * g.out_channels;
}

void add_parts(KernelContext& context, const float* parts, std::int64_t part_count,
               std::int64_t count, Write write, float* to) {
  launch("conv2d_add_parts", add_parts_kernel, {loop_blocks(count, kSumThreads)}, kSumThreads, 0,
         context.stream, parts, static_cast<int>(part_count), count, write == Write::kAdd, to);
}

}  // namespace

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& g, std::int64_t n, DType) {
  const std::int64_t pixels = n * g.out_h() * g.out_w(),
                     parts = most_weight_parts(weight_count(g), pixels);
  const std::size_t weights =
      parts > 1 ? static_cast<std::size_t>(parts * weight_count(g)) * sizeof(float) : 0;
  return std::max(weights, column_sums_scratch_bytes(pixels, g.out_channels));
}

void conv2d_backward_weights(KernelContext& context, const Conv2dGeometry& g, TensorView x,
                             TensorView dy, TensorView dweight, TensorView dbias, Write write) {
  const std::int64_t n = x.shape[0], pixels = n * g.out_h() * g.out_w();
  const Window window = forward_window(g, n);
  auto* workspace = reinterpret_cast<float*>(context.scratch.data());
  const ProductPlan plan = plan_product({window.depth, g.out_channels, pixels},
                                        most_weight_parts(weight_count(g), pixels),
                                        ProductKind(x.dtype, context.products));
  with_product<float, Lines::kAcrossDepth, Lines::kAcrossDepth>(
      x.dtype, context.products, plan.tile, [&]<class S, class Math>(S, Math*) {
        const std::int64_t part =
            std::max<std::int64_t>(64, divide_up(divide_up(pixels, plan.parts), 64) * 64);
        const std::int64_t parts = std::max<std::int64_t>(1, divide_up(pixels, part));
        float* to = parts > 1 ? workspace : dweight.as<float>();
        WeightsTask<S> task{};
        task.window = window;
        task.x = x.as<S>(), task.dy = dy.as<S>();
        task.vector_x = in_pieces(task.x, g.in_channels),
        task.vector_dy = in_pieces(task.dy, g.out_channels);
        task.column_tiles = static_cast<int>(divide_up(g.out_channels, Math::Shape::kN));
        task.part = static_cast<int>(part);
        task.part_offset = dweight.count();
        task.dweight = {to, nullptr, static_cast<int>(g.out_channels),
                        parts == 1 && write == Write::kAdd, in_pieces(to, g.out_channels)};
        const auto blocks =
            static_cast<unsigned>(divide_up(window.depth, Math::Shape::kM) * task.column_tiles);
        launch("conv2d_backward_weights", weights_kernel<S, Math>,
               {blocks, 1, static_cast<unsigned>(parts)}, Math::kThreads, Math::kSharedBytes,
               context.stream, task);
        if (parts > 1)
          add_parts(context, workspace, parts, dweight.count(), write, dweight.as<float>());
      });
  if (dbias)
    column_sums(context, dy.data, dy.dtype, pixels, g.out_channels, dbias.as<float>(), write);
}

}  // namespace engine::ops::cuda
