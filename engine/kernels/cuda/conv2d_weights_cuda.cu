// Gradients of convolution's weights and bias. dweight, seen as [kh kw in, out], is the sum over all output pixels of gathered x
// times dy. It is small and the sum long, so the pixels are split: every block adds up a tile of dweight over one part of them
// into a workspace, and a second pass adds the parts in their order, the same in every run ("split K": CUTLASS documentation,
// "Efficient GEMM in CUDA", 2017). Bound: flops; the second pass and the bias: bytes.
#include "engine/kernels/cuda/conv2d_cuda.h"

#include "engine/kernels/cuda/conv2d_dispatch.h"

namespace engine::kernels::cuda {
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
__global__ void __launch_bounds__(Math::kThreads, Math::kResident) weights_kernel(const WeightsTask<S> task) {
  using Storage = typename Math::Storage;
  auto* shared = &block_shared<Storage>();
  const int row_tile = static_cast<int>(blockIdx.x) / task.column_tiles,
            column_tile = static_cast<int>(blockIdx.x) - row_tile * task.column_tiles;
  const int first_row = row_tile * Math::Shape::kM, first_column = column_tile * Math::Shape::kN;
  const int first = static_cast<int>(blockIdx.z) * task.part;
  const int last = task.window.places - first < task.part ? task.window.places : first + task.part;
  const TapLines<S, typename Math::A::Share> rows(task.window, task.x, task.vector_x, first_row);
  const MatrixRows<S, typename Math::B::Share> columns(task.dy, task.dweight.columns, task.vector_dy, first_column);
  Math math;
  accumulate(math, rows, columns, first, last, shared);
  math.finish(reinterpret_cast<float*>(shared), [&](int row, int column, const auto& values) {
    if (first_row + row < task.window.depth)
      task.dweight.put(blockIdx.z * task.part_offset + std::int64_t{first_row + row} * task.dweight.columns,
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

constexpr int kBiasColumns = 32, kBiasRows = kSumThreads / kBiasColumns;

// Block (x, y): columns [32 x, 32 x + 32) of the sum over rows [y * part, (y + 1) * part) of dy [rows, columns].
template <class S>
__global__ void __launch_bounds__(kSumThreads)
    bias_kernel(const S* dy, std::int64_t rows, int columns, std::int64_t part, float* sums, bool add) {
  struct Shared {
    float sums[kBiasRows][kBiasColumns];
  };
  auto& shared = block_shared<Shared>();
  const int across = static_cast<int>(threadIdx.x) % kBiasColumns, down = static_cast<int>(threadIdx.x) / kBiasColumns;
  const int column = static_cast<int>(blockIdx.x) * kBiasColumns + across;
  const std::int64_t first = blockIdx.y * part, last = first + part < rows ? first + part : rows;
  float sum = 0;
  if (column < columns)
    for (std::int64_t row = first + down; row < last; row += kBiasRows) sum += to_float(dy[row * columns + column]);
  shared.sums[down][across] = sum;
  __syncthreads();
  if (down != 0 || column >= columns) return;
  for (int i = 1; i < kBiasRows; ++i) sum += shared.sums[i][across];
  float* to = sums + std::int64_t{blockIdx.y} * columns + column;
  *to = add ? *to + sum : sum;
}

// Rows of dy that a part of the bias' sum has at least, and how many parts at most.
constexpr std::int64_t kBiasPart = 1024, kMostBiasParts = 256;

std::int64_t weight_count(const Conv2dGeometry& g) { return g.kernel_h * g.kernel_w * g.in_channels * g.out_channels; }
std::int64_t bias_parts(std::int64_t pixels) {
  return std::max<std::int64_t>(1, std::min(kMostBiasParts, divide_up(pixels, kBiasPart)));
}
void add_parts(KernelContext& context, const float* parts, std::int64_t part_count, std::int64_t count, Write write, float* to) {
  launch("conv2d_add_parts", add_parts_kernel, {loop_blocks(count, kSumThreads)}, kSumThreads, 0, context.stream, parts,
         static_cast<int>(part_count), count, write == Write::kAdd, to);
}

void backward_bias(KernelContext& context, std::int64_t pixels, TensorView dy, TensorView dbias, Write write) {
  const std::int64_t channels = dbias.count(), wanted = bias_parts(pixels), part = divide_up(pixels, wanted),
                     parts = part > 0 ? divide_up(pixels, part) : 1;
  auto* workspace = reinterpret_cast<float*>(context.scratch.data());
  with_storage(dy.dtype, [&]<class S>(S) {
    launch("conv2d_backward_bias", bias_kernel<S>,
           {static_cast<unsigned>(divide_up(channels, kBiasColumns)), static_cast<unsigned>(parts)}, kSumThreads,
           kSumThreads * sizeof(float), context.stream, dy.as<S>(), pixels, static_cast<int>(channels), part,
           parts > 1 ? workspace : dbias.as<float>(), parts == 1 && write == Write::kAdd);
  });
  if (parts > 1) add_parts(context, workspace, parts, channels, write, dbias.as<float>());
}

}  // namespace

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& g, std::int64_t n, DType) {
  const std::int64_t pixels = n * g.out_h() * g.out_w(), parts = most_weight_parts(weight_count(g), pixels);
  const std::int64_t weights = parts > 1 ? parts * weight_count(g) : 0;
  const std::int64_t bias = bias_parts(pixels) > 1 ? bias_parts(pixels) * g.out_channels : 0;
  return static_cast<std::size_t>(std::max(weights, bias)) * sizeof(float);
}

void conv2d_backward_weights(KernelContext& context, const Conv2dGeometry& g, TensorView x, TensorView dy, TensorView dweight,
                             TensorView dbias, Write write) {
  const std::int64_t n = x.shape[0], pixels = n * g.out_h() * g.out_w();
  const Window window = forward_window(g, n);
  auto* workspace = reinterpret_cast<float*>(context.scratch.data());
  const ProductPlan plan = plan_product({window.depth, g.out_channels, pixels}, most_weight_parts(weight_count(g), pixels),
                                        ProductKind(x.dtype, context.products));
  with_product<float, Lines::kAcrossDepth, Lines::kAcrossDepth>(
      x.dtype, context.products, plan.tile, [&]<class S, class Math>(S, Math*) {
        const std::int64_t part = std::max<std::int64_t>(64, divide_up(divide_up(pixels, plan.parts), 64) * 64);
        const std::int64_t parts = std::max<std::int64_t>(1, divide_up(pixels, part));
        float* to = parts > 1 ? workspace : dweight.as<float>();
        WeightsTask<S> task{};
        task.window = window;
        task.x = x.as<S>(), task.dy = dy.as<S>();
        task.vector_x = in_pieces(task.x, g.in_channels), task.vector_dy = in_pieces(task.dy, g.out_channels);
        task.column_tiles = static_cast<int>(divide_up(g.out_channels, Math::Shape::kN));
        task.part = static_cast<int>(part);
        task.part_offset = dweight.count();
        task.dweight = {to, nullptr, static_cast<int>(g.out_channels), parts == 1 && write == Write::kAdd,
                        in_pieces(to, g.out_channels)};
        const auto blocks = static_cast<unsigned>(divide_up(window.depth, Math::Shape::kM) * task.column_tiles);
        launch("conv2d_backward_weights", weights_kernel<S, Math>, {blocks, 1, static_cast<unsigned>(parts)}, Math::kThreads,
               Math::kSharedBytes, context.stream, task);
        if (parts > 1) add_parts(context, workspace, parts, dweight.count(), write, dweight.as<float>());
      });
  if (dbias) backward_bias(context, pixels, dy, dbias, write);
}

}  // namespace engine::kernels::cuda
