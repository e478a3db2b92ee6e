// Newton-Schulz iterations by the products of dense layers, in the dtype of the matrix whatever the
// precision of the model's products is. x x^T and its square are symmetric, so a square is also a
// product with the transpose; a tall matrix takes x^T x instead, and needs no transposition. Bound
// by flops.
#include "engine/ops/optim_step/orthogonalize_cuda.h"

#include <algorithm>
#include <utility>

#include "engine/core/arena.h"
#include "engine/ops/dense/dense.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
// Parts of the sum of squares: at most one for each thread of the block that adds them.
constexpr std::int64_t kMinPart = 4096;

std::int64_t parts_of(std::int64_t count) {
  return std::clamp<std::int64_t>(divide_up(count, kMinPart), 1, kThreads);
}

struct Partial {
  double of_warp[kThreads / kWarp];
};

template <class N>
__global__ void sum_squares(const N* values, std::int64_t count, std::int64_t part, double* parts) {
  const std::int64_t first = std::int64_t{blockIdx.x} * part,
                     last = first + part < count ? first + part : count;
  double sum = 0;
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) {
    const double value = values[i];
    sum += value * value;
  }
  sum = block_sum(sum, block_shared<Partial>().of_warp);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// to = values / (norm + eps), where the norm is that of the parts. `to` may be `values`.
template <class N>
__global__ void divide_by_norm(const N* values, std::int64_t count, const double* parts,
                               int part_count, N* to) {
  const int thread = static_cast<int>(threadIdx.x);
  const double squares =
      block_sum(thread < part_count ? parts[thread] : 0.0, block_shared<Partial>().of_warp);
  const auto by = static_cast<N>(sqrt(squares) + NewtonSchulz::kEps);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + thread; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = values[i] / by;
}

// to = factor * from, or keep * to + factor * from if keep is not 0.
template <class N>
__global__ void combine(const N* from, std::int64_t count, N factor, N keep, N* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads)
    to[i] = keep == 0 ? factor * from[i] : keep * to[i] + factor * from[i];
}

constexpr const char* kName = "orthogonalize";

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

void launch_combine(const KernelContext& context, TensorView from, double factor, double keep,
                    TensorView to) {
  with_number(from.dtype, [&]<class N>(N) {
    launch(kName, combine<N>, {loop_blocks(from.count(), kThreads)}, kThreads, 0, context.stream,
           from.as<N>(), from.count(), static_cast<N>(factor), static_cast<N>(keep), to.as<N>());
  });
}

// Takes tensors from the front of the context's scratch.
TensorView take(KernelContext& context, const Shape& shape, DType dtype) {
  const TensorView view{context.scratch.data(), dtype, shape, context.device};
  context.scratch = context.scratch.subspan(align_up(view.bytes()));
  return view;
}

void divide_matrix_by_norm(KernelContext& context, TensorView from, TensorView to) {
  const std::int64_t count = from.count(), parts = parts_of(count);
  const TensorView sums = take(context, {parts}, DType::kF64);
  with_number(from.dtype, [&]<class N>(N) {
    launch(kName, sum_squares<N>, {static_cast<unsigned>(parts)}, kThreads, sizeof(Partial),
           context.stream, from.as<N>(), count, divide_up(count, parts), sums.as<double>());
    launch(kName, divide_by_norm<N>, {loop_blocks(count, kThreads)}, kThreads, sizeof(Partial),
           context.stream, from.as<N>(), count, sums.as<double>(), static_cast<int>(parts),
           to.as<N>());
  });
}

}  // namespace

std::size_t orthogonalize_scratch_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  const std::int64_t side = std::min(rows, columns), count = rows * columns;
  const auto bytes = [dtype](std::int64_t number) {
    return align_up(static_cast<std::size_t>(number) * size_of(dtype));
  };
  const auto products = [dtype](std::int64_t n, std::int64_t in, std::int64_t out) {
    return dense_scratch_bytes(n, in, out, dtype, 0, Device::Kind::kCuda);
  };
  return bytes(count) + 2 * bytes(side * side) +
         align_up(static_cast<std::size_t>(parts_of(count)) * sizeof(double)) +
         std::max(products(rows, columns, side), products(side, side, side));
}

void orthogonalize(KernelContext& given, int steps, TensorView matrix) {
  KernelContext context = given;
  context.products = Products::kF32;
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1],
                     side = std::min(rows, columns);
  const bool tall = rows > columns;
  const TensorView other = take(context, matrix.shape, matrix.dtype),
                   a = take(context, {side, side}, matrix.dtype),
                   b = take(context, {side, side}, matrix.dtype);
  // An odd number of steps begins in the other memory, so that the last result is in the matrix.
  TensorView x = steps % 2 == 0 ? matrix : other, y = steps % 2 == 0 ? other : matrix;
  divide_matrix_by_norm(context, matrix, x);
  for (int step = 0; step < steps; ++step, std::swap(x, y)) {
    if (tall)
      ops::dense_backward_weights(context, {.x = x, .dy = x, .dweight = a});
    else
      ops::dense_forward(context, {.x = x, .weight = x, .y = a});
    ops::dense_forward(context, {.x = a, .weight = a, .y = b});
    launch_combine(context, a, NewtonSchulz::kCubic, NewtonSchulz::kQuintic, b);
    launch_combine(context, x, NewtonSchulz::kLinear, 0, y);
    ops::dense_backward_data(
        context, {.dy = tall ? x : b, .weight = tall ? b : x, .dx = y, .write = Write::kAdd});
  }
}

}  // namespace engine::ops::cuda
