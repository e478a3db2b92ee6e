// Statistics of all replicas: one thread for each channel, which combines the blocks in the order
// of the tree.
//
// A few kilobytes for each replica: the time is that of the launch. Compiled without fused
// multiply-adds, like merge_moments() on the host.
#include <cstdint>

#include "engine/ops/device/device_code.h"
#include "engine/ops/replicas/replica_moments_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void pack(double rows, std::int64_t count, const double* moments, double* block) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    if (i == 0) block[0] = rows;
    block[1 + i] = moments[i];
  }
}

// The rows of replicas [first, end). Sums of integers in f64 are exact.
__device__ __forceinline__ double rows_of(const double* blocks, std::int64_t length, int first,
                                          int end) {
  double rows = 0;
  for (int r = first; r < end; ++r) rows += blocks[r * length];
  return rows;
}

__global__ void merge(int replicas, std::int64_t channels, double* blocks, double* moments) {
  const std::int64_t length = 1 + 2 * channels;
  for (std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; c < channels;
       c += std::int64_t{gridDim.x} * kThreads) {
    for (int stride = 1; stride < replicas; stride *= 2)
      for (int i = 0; i + stride < replicas; i += 2 * stride) {
        const int last = i + 2 * stride < replicas ? i + 2 * stride : replicas;
        const double own = rows_of(blocks, length, i, i + stride),
                     other = rows_of(blocks, length, i + stride, last);
        if (other == 0) continue;
        double* into = blocks + i * length + 1 + c;
        const double* from = blocks + (i + stride) * length + 1 + c;
        if (own == 0) {
          into[0] = from[0];
          into[channels] = from[channels];
          continue;
        }
        const double weight = other / (own + other), difference = from[0] - into[0];
        into[0] += difference * weight;
        into[channels] += from[channels] + difference * difference * (own * weight);
      }
    moments[c] = blocks[1 + c];
    moments[channels + c] = blocks[1 + channels + c];
  }
}

__global__ void add(int replicas, std::int64_t count, double* blocks, double* sums) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    for (int stride = 1; stride < replicas; stride *= 2)
      for (int r = 0; r + stride < replicas; r += 2 * stride)
        blocks[r * count + i] += blocks[(r + stride) * count + i];
    sums[i] = blocks[i];
  }
}

}  // namespace

void pack_moments(KernelContext& context, std::int64_t rows, TensorView moments, TensorView block) {
  const std::int64_t count = moments.count();
  if (count == 0) return;
  launch("pack_moments", pack, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
         static_cast<double>(rows), count, moments.as<double>(), block.as<double>());
}

void merge_moments(KernelContext& context, TensorView blocks, TensorView moments) {
  const std::int64_t channels = moments.count() / 2;
  if (channels == 0) return;
  launch("merge_moments", merge, {loop_blocks(channels, kThreads)}, kThreads, 0, context.stream,
         static_cast<int>(blocks.shape[0]), channels, blocks.as<double>(), moments.as<double>());
}

void add_sums(KernelContext& context, TensorView blocks, TensorView sums) {
  const std::int64_t count = sums.count();
  if (count == 0) return;
  launch("add_sums", add, {loop_blocks(count, kThreads)}, kThreads, 0, context.stream,
         static_cast<int>(blocks.shape[0]), count, blocks.as<double>(), sums.as<double>());
}

}  // namespace engine::ops::cuda
